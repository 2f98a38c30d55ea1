"""Types and schemas of events, frozen samples of them, and bodies with object keys until they are forgotten."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import rfc8785
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from cleanup_project.base import canonical, clock
from cleanup_project.base.models import User
from ledger import sweep
from tests.webhooks.schemas import problems, validator, wrong_bodies
from tests.webhooks.test_guards import refused
from tests.webhooks.world import TENANT, endpoint, notice, sql, tell
from webhooks import outbox
from webhooks.eventtypes import EVENT_TYPES, EVERY, PING, TYPES, file_name
from webhooks.management.commands import schemas
from webhooks.models import BODY_LIMIT, DetailedBody, Endpoint, OutboxEvent
from webhooks.outbox import Emitted, Notice, ObjectName

pytestmark = pytest.mark.django_db
SAMPLES: Final = sorted((Path(__file__).parent / "samples").glob("*.json"))
NAMES: Final = [ObjectName("media", f"clips/{n}", f"v{n}") for n in range(3)]


# Types.


def test_an_endpoint_subscribes_to_types_that_there_are(operator: User) -> None:
    with pytest.raises(ValidationError, match=r"No such event: media\.burnt, media\.held\. There are media\.deleted"):
        endpoint(operator, event_types=["media.held", "media.deleted", "media.burnt"])
    with pytest.raises(ValidationError, match=r"No such event: endpoint\.ping"):
        endpoint(operator, event_types=[PING])
    made, _ = endpoint(operator, event_types=sorted(EVENT_TYPES))
    assert set(made.event_types) == EVENT_TYPES.keys()


@pytest.mark.parametrize("type", ["media.burnt", PING, "*"])
def test_what_is_described_nowhere_is_not_told(type: str) -> None:
    with pytest.raises(ValueError, match="No such event"):
        tell(notice("a", "1", type=type))


def test_only_subscribed_types_of_the_own_tenant_are_owed(operator: User) -> None:
    wanted = {
        "all": (TENANT, ["*"]), "runs": (TENANT, ["run.closed", "run.opened"]), "holds": (TENANT, ["hold.placed"]),
        "elsewhere": ("beta", ["*"]),
    }  # fmt: skip
    made = {name: endpoint(operator, name=name, tenant=to, event_types=of)[0] for name, (to, of) in wanted.items()}
    emitted = tell(*[notice("s", type, type=type) for type in EVENT_TYPES])
    types = dict(zip((each.id for each in emitted), EVENT_TYPES, strict=True))
    for name, (to, of) in wanted.items():
        heard = {types[pk] for pk in made[name].deliveries.values_list("event_id", flat=True)}
        assert heard == (set() if to != TENANT else set(EVENT_TYPES) if of == ["*"] else set(of)), name


# Schemas.


def test_what_is_published_is_what_the_types_say() -> None:
    call_command("schemas", "--check")
    assert {path.name for path in schemas.files()} == {*map(file_name, EVERY), "events.md"}


def test_a_schema_that_is_out_of_date_fails_the_check(tmp_path: Path, settings: Any, capsys: Any) -> None:
    settings.BASE_DIR = tmp_path
    (tmp_path / "docs" / "schemas").mkdir(parents=True)
    with pytest.raises(CommandError, match=r"Out of date: .*media\.deleted\.v1\.json"):
        call_command("schemas", "--check")
    call_command("schemas", "--write")
    call_command("schemas", "--check")
    (tmp_path / "docs" / "schemas" / "run.closed.v1.json").write_text("{}")
    with pytest.raises(CommandError, match=r"Out of date: run\.closed\.v1\.json. Run"):
        call_command("schemas", "--check")
    call_command("schemas")
    assert "| `quarantine.entered` | the asset |" in capsys.readouterr().out


def test_each_type_has_a_frozen_sample_of_each_version() -> None:
    wanted = {f"{name}.v{version}.json" for name, each in EVERY.items() for version in range(1, each.version + 1)}
    assert {path.name for path in SAMPLES} == wanted


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_what_was_sent_once_is_still_valid_and_nothing_of_it_may_be_left_out(path: Path) -> None:
    """Of a version, members are only ever added: whoever reads a sample's members finds them in every later body."""
    body = path.read_bytes()
    sample = json.loads(body)
    assert canonical.encode(sample) == body, "the bytes as they were sent"
    assert problems(sample) == []
    assert sample["data"].keys() <= TYPES.get(sample["type"], EVERY[PING]).data.keys()
    for member in sample:
        less = {name: value for name, value in sample.items() if name != member}
        assert problems(less, sample["type"]), f"{member} was promised"
    for member in sample["data"]:
        less = {name: value for name, value in sample["data"].items() if name != member}
        assert problems(sample | {"data": less}), f"{member} was promised"
        assert problems(sample | {"data": less | {member: {"another": "kind"}}})


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_receivers_ignore_what_they_do_not_know(path: Path) -> None:
    sample = json.loads(path.read_bytes())
    assert problems(sample | {"more": 1, "data": sample["data"] | {"more": 1}}) == []


def test_a_body_that_is_wrong_is_found() -> None:
    tell(notice("a", "1"))
    assert any("'receipt_sha256' is a required property" in each for each in wrong_bodies())
    assert validator("media.deleted").schema["properties"]["type"]["const"] == "media.deleted"


# Bytes.

KEYS = st.text(st.characters(min_codepoint=1, max_codepoint=127))
TEXTS = st.text(st.characters(min_codepoint=1, exclude_categories=["Cs"]))
WRITABLE = st.recursive(
    st.none() | st.booleans() | st.integers(-canonical.LARGEST, canonical.LARGEST) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
)


@given(st.dictionaries(KEYS, WRITABLE, max_size=4), TEXTS)
def test_a_body_is_what_rfc_8785_writes(data: dict[str, Any], subject: str) -> None:
    told = Notice("media.deleted", subject, "n", data)
    made = outbox.envelope(told, "evt_x", 7, "2026-01-01T00:00:00.000000Z")
    assert made == rfc8785.dumps(json.loads(made))
    assert json.loads(made)["data"] == data


@pytest.mark.parametrize(
    "bad", [1.5, float("nan"), 2**53, -(2**53), "a\x00", "\ud800", {"a\x00": 1}, {"é": 1}, b"x", {1: 1}]
)
def test_what_writers_disagree_about_is_refused(bad: Any) -> None:
    for data in ({"x": bad}, {"x": [{"y": bad}]}):
        with pytest.raises(canonical.NotCanonical):
            tell(notice("a", "1", data=data))


# Object keys.


def asked(by: User, **fields: Any) -> Endpoint:
    made, _ = endpoint(by, **fields)
    Endpoint.objects.filter(pk=made.pk).update(include_keys=True)
    return made


def named(names: list[ObjectName] = NAMES, **fields: Any) -> Notice:
    return notice("a", fields.pop("name", "1"), objects=lambda: names, **fields)


def detailed(emitted: Emitted) -> dict[str, Any] | None:
    row = DetailedBody.objects.filter(event_id=emitted.id).first()
    return json.loads(bytes(row.body)) if row else None


def test_a_body_with_object_keys_is_the_body_and_the_objects(operator: User) -> None:
    asked(operator)
    tell(named())
    row = DetailedBody.objects.get()
    body, plain = json.loads(bytes(row.body)), json.loads(bytes(OutboxEvent.objects.get().body))
    assert bytes(row.body) == rfc8785.dumps(body)
    assert body["data"].pop("objects") == [
        {"bucket": "media", "key": f"clips/{n}", "version_id": f"v{n}"} for n in range(3)
    ]
    assert body["data"].pop("objects_omitted") == 0
    assert body == plain
    assert "clips" not in json.dumps(plain)


def test_what_has_no_objects_has_no_second_body(operator: User) -> None:
    asked(operator)
    first, second = tell(notice("a", "1"), named(name="2"))
    assert detailed(first) is None
    assert detailed(second) is not None


@pytest.mark.parametrize(
    "fields",
    [
        {"event_types": ["run.closed"]},
        {"tenant": "beta"},
        {"include_keys": False},
        {"retired_at": "2026-01-01T00:00Z", "disabled_at": "2026-01-01T00:00Z", "disabled_reason": "Gone."},
    ],
)
def test_the_objects_are_not_even_looked_up_where_nobody_may_have_them(fields: dict[str, Any], operator: User) -> None:
    endpoint(operator, name="thin")
    Endpoint.objects.filter(pk=asked(operator).pk).update(**fields)

    def never() -> list[ObjectName]:
        raise AssertionError

    tell(notice("a", "1", objects=never))
    assert not DetailedBody.objects.exists()


def test_who_may_have_them_is_decided_where_they_are_written(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint that asked when the bodies were made, and does no longer when they are written."""
    endpoint(operator)
    monkeypatch.setattr(outbox, "with_objects", lambda _cursor, _tenant, _told, ids, *_: [(ids[0], b"{}")])
    tell(named())
    assert not DetailedBody.objects.exists()


def test_a_disabled_endpoint_may_still_want_them(operator: User) -> None:
    made = asked(operator)
    Endpoint.objects.filter(pk=made.pk).update(disabled_at="2026-01-01T00:00Z", disabled_reason="Moving.")
    (emitted,) = tell(named())
    assert detailed(emitted) is not None


def test_a_body_with_object_keys_is_filled_to_its_limit_and_no_further(operator: User) -> None:
    asked(operator)
    empty = len(bytes(tell_and_get(named([])).body))
    one = len(canonical.encode(ObjectName("b", "", "v")._asdict()))
    exact = BODY_LIMIT - empty - one
    for length, left_out in ((exact, 0), (exact + 1, 1)):
        row = tell_and_get(named([ObjectName("b", "k" * length, "v")], name=f"l{length}"))
        data = json.loads(bytes(row.body))["data"]
        assert (len(data["objects"]), data["objects_omitted"]) == (1 - left_out, left_out)
        assert len(bytes(row.body)) <= BODY_LIMIT


def tell_and_get(told: Notice) -> DetailedBody:
    (emitted,) = tell(told)
    return DetailedBody.objects.get(event_id=emitted.id)


def test_one_long_name_leaves_out_itself_and_what_follows_it(operator: User) -> None:
    asked(operator)
    names = [NAMES[0], ObjectName("media", "k" * BODY_LIMIT, "v"), NAMES[1]]
    (emitted,) = tell(named(names))
    body = detailed(emitted)
    assert body is not None
    assert [each["key"] for each in body["data"]["objects"]] == ["clips/0"]
    assert body["data"]["objects_omitted"] == 2


# Forgetting.


def told_long_ago(*notices: Notice, days: int) -> list[Emitted]:
    with transaction.atomic():
        return outbox.emit(TENANT, notices, at=clock.now() - timedelta(days=days))


def settled(days: int, where: str = "true") -> None:
    """What is owed was delivered so many days ago."""
    sql(f"UPDATE webhooks_delivery SET state = 'delivered', finished_at = now() WHERE state = 'pending' AND {where}")
    sql(
        "UPDATE webhooks_outboxevent SET settled_at = now() - make_interval(days => %s) "
        f"WHERE settled_at IS NULL AND {where}",
        days,
    )


@pytest.mark.parametrize(("days", "forgotten"), [(29, 0), (31, 1)])
def test_bodies_with_object_keys_are_forgotten_a_month_after_everybody_has_them(
    days: int, forgotten: int, operator: User
) -> None:
    asked(operator)
    told_long_ago(named(), days=90)
    settled(days)
    assert outbox.forget_details() == forgotten
    assert (DetailedBody.objects.count(), OutboxEvent.objects.count()) == (1 - forgotten, 1)


def test_what_is_owed_or_being_sent_again_is_kept(operator: User) -> None:
    made = asked(operator)
    (emitted,) = told_long_ago(named(), days=90)
    assert outbox.forget_details() == 0, "not settled"
    settled(60)
    sql(
        "INSERT INTO webhooks_delivery (event_id, endpoint_id, tenant, round, requested_by_id, sequence, state, due_at, "
        "attempts, lease_token, last_class, last_error, cancel_reason) "
        "VALUES (%s, %s, 'acme', 1, %s, 1, 'pending', now(), 0, 0, '', '', '')",
        emitted.id,
        made.pk,
        operator.pk,
    )
    assert outbox.forget_details() == 0, "on its way again"
    settled(60)
    assert outbox.forget_details() == 1


def test_forgetting_walks_in_chunks_past_what_is_kept(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "CHUNK", 2)
    asked(operator)
    told_long_ago(*[named(name=str(n)) for n in range(5)], days=60)
    settled(50, "sequence > 2")
    tell(*[named(name=str(n)) for n in range(5, 9)])
    assert outbox.forget_details() == 3
    assert DetailedBody.objects.count() == 6


def test_where_all_is_young_the_rest_is_not_read(operator: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "CHUNK", 2)
    asked(operator)
    tell(*[named(name=str(n)) for n in range(8)])
    with CaptureQueriesContext(connection) as queries:
        outbox.forget_details()
    assert sum("DELETE" in each["sql"] for each in queries) == 1


def test_a_day_is_the_least() -> None:
    with pytest.raises(ValueError, match="at least a day"):
        outbox.forget_details(older_than=timedelta(hours=23))


@pytest.mark.django_db(transaction=True)
def test_the_database_keeps_bodies_with_object_keys_too(operator: User) -> None:
    asked(operator)
    tell(named())
    refused("DELETE FROM webhooks_detailedbody")  # not settled
    sql("UPDATE webhooks_outboxevent SET settled_at = now() - interval '25 hours'")
    refused("DELETE FROM webhooks_detailedbody")  # one delivery is still pending
    refused("UPDATE webhooks_detailedbody SET body = 'x', body_sha256 = sha256('x')")
    refused("TRUNCATE webhooks_detailedbody")
    with transaction.atomic():
        sql("SET LOCAL session_replication_role = replica")
        refused("DELETE FROM webhooks_detailedbody")
    sql("UPDATE webhooks_delivery SET state = 'delivered', finished_at = now()")
    sql("DELETE FROM webhooks_detailedbody")
    assert not DetailedBody.objects.exists()


def test_the_database_keeps_them_for_a_day_at_least(operator: User) -> None:
    asked(operator)
    tell(named())
    sql("UPDATE webhooks_delivery SET state = 'delivered', finished_at = now()")
    sql("UPDATE webhooks_outboxevent SET settled_at = now() - interval '23 hours'")
    refused("DELETE FROM webhooks_detailedbody")


def test_the_sweep_forgets(operator: User) -> None:
    asked(operator)
    told_long_ago(named(), days=90)
    settled(31)
    assert sweep.sweep()["keys_forgotten"] == 1
