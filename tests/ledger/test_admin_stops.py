"""The stop switch in the admin: one link away on every page, on top of every page while it is on."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from cleanup_project.base import roles
from cleanup_project.base.models import User
from ledger import claim, stops
from retention import control
from retention.models import StopSwitch
from tests.ledger.acting import Acting, build
from tests.web import quick_pages, url  # noqa: F401

pytestmark = pytest.mark.django_db


@pytest.fixture
def world() -> Acting:
    return build()


def fields(**changed: Any) -> dict[str, Any]:
    return {"scope": "everything", "tenant": "", "bucket": "", "policy": "", "reason": "Look first."} | changed


@pytest.mark.parametrize("role", roles.MATRIX)
def test_who_may_stop_finds_the_switch_on_every_page(role: str, person: Callable[..., User], client: Client) -> None:
    client.force_login(person("somebody", role))
    may = "stop" in roles.MATRIX[role]
    page = url(StopSwitch, "add")
    for address in ("/admin/", url(StopSwitch, "changelist")):
        assert (f'href="{page}">Stop…</a>' in client.get(address).content.decode()) == may
    assert client.get(page).status_code == (200 if may else 403)
    assert client.post(page, fields()).status_code == (302 if may else 403)
    assert StopSwitch.objects.exists() == may


@pytest.mark.parametrize("role", roles.MATRIX)
def test_everybody_sees_on_every_page_who_has_stopped_what_and_why(
    role: str, world: Acting, person: Callable[..., User], client: Client
) -> None:
    client.force_login(person("somebody", role))
    assert "Stopped by" not in client.get("/admin/").content.decode()
    switch = control.press(
        scope="bucket", bucket=world.bucket, by=world.people["operator"], reason="<b>\u202eLook</b> first."
    )
    for address in ("/admin/", url(StopSwitch, "changelist")):
        shown = client.get(address).content.decode()
        assert f'<li class="stop"><a href="{url(StopSwitch, "change", switch.pk)}">Stopped by operator since' in shown
        assert "bucket media. &lt;b&gt;\\u202eLook&lt;/b&gt; first.</a>" in shown
    control.lift(switch=switch, by=world.people["compliance"], reason="Seen.")
    assert "Stopped by" not in client.get("/admin/").content.decode()


def test_many_switches_leave_room_for_the_page(world: Acting, client: Client) -> None:
    for n in range(7):
        bucket = type(world.bucket).objects.create(name=f"b{n}")
        control.press(scope="bucket", bucket=bucket, by=world.people["operator"], reason="Wait.")
    client.force_login(world.people["operator"])
    shown = client.get("/admin/").content.decode()
    assert shown.count("Stopped by operator") == 5
    assert "More is stopped" in shown
    listed = client.get(url(StopSwitch, "changelist"), {"lifted_at__isnull": "True"}).content.decode()
    assert "On now" in listed


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"scope": "bucket"}, "Name the bucket to stop."),
        ({"tenant": "own"}, "Leave this empty, or choose &quot;one tenant&quot; as the scope."),
        ({"reason": " "}, "This field is required."),
        ({"scope": ""}, "This field is required."),
    ],
)
def test_a_refused_press_comes_back_with_words(
    changed: dict[str, Any], words: str, world: Acting, client: Client
) -> None:
    client.force_login(world.people["operator"])
    changed = {name: world.tenant.pk if value == "own" else value for name, value in changed.items()}
    shown = client.post(url(StopSwitch, "add"), fields(**changed)).content.decode()
    assert shown.count(words) == 1
    assert not StopSwitch.objects.exists()


def test_what_is_stopped_already_is_said_to_be(world: Acting, client: Client) -> None:
    client.force_login(world.people["operator"])
    one = fields(scope="policy", policy=world.revision.policy.pk)
    assert client.post(url(StopSwitch, "add"), one).status_code == 302
    assert "It is stopped already" in client.post(url(StopSwitch, "add"), one).content.decode()
    assert StopSwitch.objects.count() == 1


def test_compliance_lifts_it_with_a_reason_and_nobody_else_does(world: Acting, client: Client) -> None:
    switch = control.press(scope="everything", by=world.people["operator"], reason="Look first.")
    page, own = url(StopSwitch, "lift", switch.pk), url(StopSwitch, "change", switch.pk)
    client.force_login(world.people["operator"])
    assert page not in client.get(own).content.decode()
    assert client.get(page).status_code == client.post(page, {"reason": "Seen."}).status_code == 403
    client.force_login(world.people["compliance"])
    assert page in client.get(own).content.decode()
    asked = client.get(page).content.decode()
    assert "Look first." in asked
    assert '<textarea name="reason"' in asked
    assert client.post(page, {"reason": ""}).status_code == 200
    assert client.post(page, {"reason": "Seen."}).status_code == 302
    switch.refresh_from_db()
    assert (switch.lifted_by, switch.lift_reason) == (world.people["compliance"], "Seen.")
    assert page not in client.get(own).content.decode()
    assert "is lifted already" in client.post(page, {"reason": "Again."}).content.decode()


def test_its_page_says_what_was_in_flight_and_how_that_ended(world: Acting, client: Client) -> None:
    world.put("a")
    world.run()
    claim.claim(world.bucket.pk, world.tenant.pk, [0, 1, 2], 60)
    switch = control.press(scope="everything", by=world.people["operator"], reason="Look first.")
    client.force_login(world.people["compliance"])
    own = url(StopSwitch, "change", switch.pk)
    assert "not counted yet" in client.get(own).content.decode()
    stops.pressed(switch.pk)
    shown = client.get(own).content.decode()
    assert "1 command at" in shown
    assert "of 1 the end is not known" in shown
    assert world.command("a").key in shown
    world.leases_expire()
    world.drain()
    assert "of 0 the end is not known" in client.get(own).content.decode()
