"""Signatures: the specification's vector, the reference package, and what a receiver must refuse."""

import base64
import json
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from tests.webhooks.vector import BODY, ID, SECRET, STAMP, signed
from webhooks import signing
from webhooks.receiver import Refused, Verified, parse_secret, signature, verify


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
