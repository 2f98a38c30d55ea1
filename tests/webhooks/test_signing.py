"""Signatures: the specification's vector, the reference package, and what a receiver must refuse."""

import base64
import json
import time
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from webhooks import signing
from webhooks.receiver import Refused, Seen, Verified, parse_secret, signature, verify

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID, STAMP = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330
BODY = b'{"test": 2432232314}'
OTHER = signing.secret_text(b"o" * 32)


def signed(
    body: bytes = BODY, *, id: str = ID, at: int = STAMP, secrets: tuple[str, ...] = (SECRET,)
) -> dict[str, str]:
    return signing.headers([parse_secret(secret) for secret in secrets], id, at, body)


def test_the_vector_of_the_specification() -> None:
    assert signature(parse_secret(SECRET), ID, STAMP, BODY) == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@given(st.binary(min_size=24, max_size=64), st.text(st.characters(exclude_categories=["Cs"])))
def test_the_reference_package_verifies_what_we_sign(key: bytes, text: str) -> None:
    body = json.dumps(text, ensure_ascii=False)
    now = int(time.time())
    secret = signing.secret_text(key)
    headers = signed(body.encode(), id="evt_1", at=now, secrets=(secret,))
    assert Webhook(secret).verify(body.encode(), headers) == text
    theirs = Webhook(secret).sign("evt_1", datetime.fromtimestamp(now, UTC), body)
    assert verify([secret], headers | {"webhook-signature": theirs}, body.encode(), now=now) == Verified("evt_1", now)


def test_a_new_key_is_random_and_reads_back() -> None:
    one, other = signing.new_key(), signing.new_key()
    assert (len(one), one != other, parse_secret(signing.secret_text(one))) == (32, True, one)


@pytest.mark.parametrize(
    "text",
    [
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whpk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_" + base64.urlsafe_b64encode(b"\xff" * 32).decode(),
        "whsec_" + base64.b64encode(b"k" * 23).decode(),
        "whsec_" + base64.b64encode(b"k" * 65).decode(),
        "whsec_" + base64.b64encode(b"k" * 32).decode().rstrip("="),
        "whsec_ä" + base64.b64encode(b"k" * 32).decode(),
        "whsec_" + base64.b64encode(b"k" * 32).decode() + "\n",
        "whsec_",
    ],
)
def test_a_secret_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        parse_secret(text)


def test_both_secrets_verify_while_one_replaces_the_other() -> None:
    headers = signed(secrets=(OTHER, SECRET))
    assert headers["webhook-signature"].split(" ")[0] == signed(secrets=(OTHER,))["webhook-signature"]
    for known in ([SECRET], [OTHER], [SECRET, OTHER]):
        assert verify(known, headers, BODY, now=STAMP).id == ID
    with pytest.raises(Refused):
        verify([OTHER], signed(), BODY, now=STAMP)


@pytest.mark.parametrize("bit", range(8))
def test_each_flipped_bit_is_refused(bit: int) -> None:
    for place in range(len(BODY)):
        changed = BODY[:place] + bytes([BODY[place] ^ (1 << bit)]) + BODY[place + 1 :]
        with pytest.raises(Refused):
            verify([SECRET], signed(), changed, now=STAMP)
    for name, value in signed().items():
        for place in range(len(value)):
            changed_value = value[:place] + chr(ord(value[place]) ^ (1 << bit)) + value[place + 1 :]
            with pytest.raises(Refused):
                verify([SECRET], signed() | {name: changed_value}, BODY, now=STAMP)


@pytest.mark.parametrize(
    "value",
    ["", "v1", "v1,", "v1,a,b", "v1,%%%", "v1,Grüße", "v2,abc", "v1,g0hM9SsE+OTPJTGt  /tmI", "v1," + "A" * 10_000],
)
def test_a_hostile_signature_header_is_refused(value: str) -> None:
    with pytest.raises(Refused):
        verify([SECRET], signed() | {"webhook-signature": value}, BODY, now=STAMP)


def test_unknown_versions_beside_a_good_one_are_passed_over() -> None:
    headers = signed()
    headers["webhook-signature"] = f"v1a,abc v9,x {headers['webhook-signature']} v1,nonsense"
    assert verify([SECRET], headers, BODY, now=STAMP).id == ID


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_or_doubled_header_is_refused(name: str) -> None:
    headers = signed()
    with pytest.raises(Refused):
        verify([SECRET], headers | {name.upper(): headers[name]}, BODY, now=STAMP)
    del headers[name]
    with pytest.raises(Refused):
        verify([SECRET], headers, BODY, now=STAMP)


def test_the_case_of_header_names_does_not_matter() -> None:
    assert verify([SECRET], {name.title(): value for name, value in signed().items()}, BODY, now=STAMP)


@pytest.mark.parametrize("off", [-301, 301])
def test_a_time_too_far_away_is_refused(off: int) -> None:
    with pytest.raises(Refused):
        verify([SECRET], signed(), BODY, now=STAMP + off)
    assert verify([SECRET], signed(), BODY, now=STAMP + off * 299 // 301)


@pytest.mark.parametrize(
    "stamp", ["1614265330.0", " 1614265330", "1e9", "1_614_265_330", "١٦١٤٢٦٥٣٣٠", "nan", "-1", ""]
)
def test_a_time_that_is_no_number_of_seconds_is_refused(stamp: str) -> None:
    with pytest.raises(Refused):
        verify([SECRET], signed() | {"webhook-timestamp": stamp}, BODY, now=STAMP)


def test_the_store_tells_the_first_time_from_the_second_for_each_endpoint(tmp_path: Path) -> None:
    answers = []
    for endpoint, id in (("a", "1"), ("a", "1"), ("b", "1"), ("a", "2")):
        with Seen(tmp_path / "seen").first_time(endpoint, id) as first:
            answers.append(first)
    assert answers == [True, False, True, True]


def test_an_effect_that_fails_is_not_remembered(tmp_path: Path) -> None:
    seen = Seen(tmp_path / "seen")
    with pytest.raises(ZeroDivisionError), seen.first_time("a", "1"):
        raise ZeroDivisionError
    with seen.first_time("a", "1") as first:
        assert first


def test_two_copies_at_once_have_one_effect(tmp_path: Path) -> None:
    seen, barrier, effects = Seen(tmp_path / "seen"), Barrier(4), []

    def handle() -> None:
        barrier.wait()
        with seen.first_time("a", "1") as first:
            if first:
                time.sleep(0.05)
                effects.append("once")

    threads = [Thread(target=handle) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert effects == ["once"]
