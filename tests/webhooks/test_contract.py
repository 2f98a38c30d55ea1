"""The checks that receivers run: a good receiver passes every one, and each mistake is found by the check made for it."""

import base64
import hmac
import json
import os
import re
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import pytest
from django.conf import settings

from webhooks import contract, forgery
from webhooks.contract import CHECKS, FAILED, NOT_OBSERVABLE, PASSED, Target
from webhooks.receiver import (
    LARGEST_BODY,
    Refused,
    Seen,
    Verified,
    header,
    pairs,
    parse_secret,
    read_body,
    signature,
    verify,
)

SECRET, OLD, EXPIRED = (forgery.other_secret() for _ in range(3))


class Good:
    """A receiver as the helper makes it, in steps that another can do worse."""

    limit = LARGEST_BODY

    def __init__(self, folder: Path) -> None:
        self.seen = Seen(folder / "seen.sqlite")
        self.effects = 0
        self.lock = Lock()

    def secrets(self) -> list[str]:
        return [SECRET, OLD]

    def verify(self, headers: Message, body: bytes) -> Verified:
        return verify(self.secrets(), headers, body, now=time.time())

    def endpoint(self, path: str) -> str:
        return path

    def act(self, event: dict[str, Any]) -> None:
        with self.lock:
            self.effects += 1

    def handle(self, path: str, headers: Message, body: bytes) -> tuple[int, bytes]:
        try:
            verified = self.verify(headers, body)
        except Refused as refused:
            return self.refusal(refused, headers, body)
        return self.accept(path, verified, json.loads(body))

    def accept(self, path: str, verified: Verified, event: dict[str, Any]) -> tuple[int, bytes]:
        with self.seen.first_time(self.endpoint(path), verified.id) as first:
            if first:
                self.act(event)
        return 204, b""

    def refusal(self, refused: Refused, headers: Message, body: bytes) -> tuple[int, bytes]:
        return refused.status, b""


class Careless(Good):
    """Verifies by itself, by the letter of the scheme and no more; each step can be done worse."""

    def stamp(self, headers: Message) -> str:
        return header(pairs(headers), "webhook-timestamp")

    def is_fresh(self, stamp: str) -> bool:
        return bool(re.fullmatch("[1-9][0-9]{0,11}", stamp)) and abs(time.time() - int(stamp)) <= 300

    def fits(self, expected: list[str], given: str) -> bool:
        return any(each in expected for each in given.split(" "))

    def signed(self, body: bytes) -> bytes:
        return body

    def verify(self, headers: Message, body: bytes) -> Verified:
        told = pairs(headers)
        id, stamp, given = header(told, "webhook-id"), self.stamp(headers), header(told, "webhook-signature")
        told = b".".join((id.encode(), stamp.encode(), self.signed(body)))
        digests = [hmac.digest(parse_secret(secret), told, "sha256") for secret in self.secrets()]
        expected = ["v1," + base64.b64encode(digest).decode() for digest in digests]
        if not self.is_fresh(stamp) or not self.fits(expected, given):
            raise Refused("no")
        return Verified(id, int(float(stamp)) if stamp.isascii() else 0)


class ParsesFirst(Good):
    def handle(self, path: str, headers: Message, body: bytes) -> tuple[int, bytes]:
        try:
            json.loads(body)
        except (ValueError, RecursionError):
            return 400, b""
        return super().handle(path, headers, body)


class ParsesFirstAndFalls(Good):
    def handle(self, path: str, headers: Message, body: bytes) -> tuple[int, bytes]:
        json.loads(body)
        return super().handle(path, headers, body)


class AnyTime(Careless):
    def is_fresh(self, stamp: str) -> bool:
        return True


class PastOnly(Careless):
    def is_fresh(self, stamp: str) -> bool:
        return stamp.isascii() and stamp.isdigit() and time.time() - int(stamp) <= 300


class OneMinute(Good):
    def verify(self, headers: Message, body: bytes) -> Verified:
        return verify(self.secrets(), headers, body, now=time.time(), tolerance=60)


class NumberOfAnyForm(Careless):
    """`float` reads fractions, exponents, underscores, signs, blanks; `nan` is never too far away."""

    def is_fresh(self, stamp: str) -> bool:
        return not abs(time.time() - float(stamp)) > 300


class WholeNumberOfAnyForm(Good):
    """Signs the number that it read instead of the text that came."""

    def verify(self, headers: Message, body: bytes) -> Verified:
        stamp = int(headers["webhook-timestamp"])
        right = signature(parse_secret(SECRET), headers["webhook-id"], stamp, body)
        if abs(time.time() - stamp) > 300 or right not in headers["webhook-signature"].split(" "):
            raise Refused("no")
        return Verified(headers["webhook-id"], stamp)


class FirstSignatureAlone(Careless):
    def fits(self, expected: list[str], given: str) -> bool:
        return given.split(" ")[0] in expected


class PrefixIsEnough(Careless):
    def fits(self, expected: list[str], given: str) -> bool:
        return any(right.startswith(each) for right in expected for each in given.split(" "))


class DecodesWhatComes(Careless):
    """Compares bytes: what is no base64 is an error of the server's."""

    def fits(self, expected: list[str], given: str) -> bool:
        rights = [base64.b64decode(each[3:]) for each in expected]
        return any(base64.b64decode(each.split(",")[1], validate=True) in rights for each in given.split(" "))


class HeaderIsThere(Good):
    def handle(self, path: str, headers: Message, body: bytes) -> tuple[int, bytes]:
        for name in ("id", "timestamp", "signature"):
            headers[f"webhook-{name}"].encode("ascii")
        return super().handle(path, headers, body)


class FirstOfTwo(Good):
    def verify(self, headers: Message, body: bytes) -> Verified:
        return verify(self.secrets(), {name.lower(): headers[name] for name in headers}, body, now=time.time())


class SignsWhatItParsed(Careless):
    def signed(self, body: bytes) -> bytes:
        with suppress(ValueError):
            return forgery.canonical(json.loads(body))
        return body


class Latin1(Careless):
    def signed(self, body: bytes) -> bytes:
        return body.decode("latin-1").encode()


class NoSignature(Careless):
    def fits(self, expected: list[str], given: str) -> bool:
        return True


class WithoutId(Good):
    """Takes the id for the key of its store from the body alone, and leaves the header to whoever sends it."""

    def verify(self, headers: Message, body: bytes) -> Verified:
        with suppress(ValueError):
            headers.replace_header("webhook-id", json.loads(body)["id"])
        return super().verify(headers, body)


class OneStoreForAll(Good):
    def endpoint(self, path: str) -> str:
        return "all"


class NoStore(Good):
    def accept(self, path: str, verified: Verified, event: dict[str, Any]) -> tuple[int, bytes]:
        self.act(event)
        return 204, b""


class LooksThenActs(Good):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.handled: set[str] = set()

    def accept(self, path: str, verified: Verified, event: dict[str, Any]) -> tuple[int, bytes]:
        if path + verified.id not in self.handled:
            time.sleep(0.1)  # its effect takes a while
            self.act(event)
            self.handled.add(path + verified.id)
        return 204, b""


class CopyIsAnError(Good):
    def accept(self, path: str, verified: Verified, event: dict[str, Any]) -> tuple[int, bytes]:
        with self.seen.first_time(path, verified.id) as first:
            if first:
                self.act(event)
        return (204 if first else 409), b""


class KnownTypesAlone(Good):
    def accept(self, path: str, verified: Verified, event: dict[str, Any]) -> tuple[int, bytes]:
        return super().accept(path, verified, event) if event["type"] == "media.deleted" else (422, b"")


class FirstVersionAlone(Good):
    def accept(self, path: str, verified: Verified, event: dict[str, Any]) -> tuple[int, bytes]:
        return super().accept(path, verified, event) if event["schema_version"] == 1 else (422, b"")


class KnownMembersAlone(Good):
    known = frozenset({"data", "id", "schema_version", "sequence", "subject", "timestamp", "type"})

    def accept(self, path: str, verified: Verified, event: dict[str, Any]) -> tuple[int, bytes]:
        return super().accept(path, verified, event) if set(event) == self.known else (422, b"")


class NoLimit(Careless):
    limit = 1 << 40


class SmallLimit(Good):
    limit = 32 * 1024


class TellsTheSignature(Good):
    def refusal(self, refused: Refused, headers: Message, body: bytes) -> tuple[int, bytes]:
        id, stamp = headers["webhook-id"] or "", headers["webhook-timestamp"] or "0"
        return 401, f"expected {signature(parse_secret(SECRET), id, int(stamp), body)}".encode()


class TellsTheSecret(Good):
    def refusal(self, refused: Refused, headers: Message, body: bytes) -> tuple[int, bytes]:
        return 401, json.dumps({"settings": {"secret": SECRET}}).encode()


class TellsTheTraceback(Good):
    def refusal(self, refused: Refused, headers: Message, body: bytes) -> tuple[int, bytes]:
        return 401, "".join(traceback.format_exception(refused)).encode()


class OneSecret(Good):
    def secrets(self) -> list[str]:
        return [SECRET]


class EverySecret(Good):
    def secrets(self) -> list[str]:
        return [SECRET, OLD, EXPIRED]


class Slow(Good):
    def act(self, event: dict[str, Any]) -> None:
        time.sleep(0.2)
        super().act(event)


HOSTILE_500 = {"a webhook-signature without a value is refused", "a webhook-signature that is no base64 is refused"}
NUMBERS = {
    f"a webhook-timestamp {how} is refused"
    for how in ("with a fraction", "with an exponent", "with underscores", "with a sign", "with a leading zero")
}
MISTAKES: dict[type[Good], set[str]] = {
    ParsesFirst: {"the signature is judged before the body is parsed"},
    ParsesFirstAndFalls: {"the signature is judged before the body is parsed"},
    AnyTime: {"an event of 301 seconds ago is refused", "an event 306 seconds ahead is refused"},
    PastOnly: {"an event 306 seconds ahead is refused"},
    OneMinute: {"an event of 295 seconds ago is acknowledged", "an event 299 seconds ahead is acknowledged"},
    NumberOfAnyForm: NUMBERS | {"a webhook-timestamp that is not a number is refused"},
    WholeNumberOfAnyForm: {
        "a webhook-timestamp with underscores is refused",
        "a webhook-timestamp with a sign is refused",
        "a webhook-timestamp with a leading zero is refused",
        "a webhook-timestamp after a no-break space is refused",
        "a webhook-timestamp in hexadecimal is refused",
        "a webhook-timestamp in Arabic digits is refused",
        "an event without webhook-timestamp is refused",
    },
    FirstSignatureAlone: {
        "a good signature is found wherever it stands",
        "unknown versions beside a good signature are passed over",
    },
    PrefixIsEnough: {
        "a signature that breaks off is refused",
        "a webhook-signature without a value is refused",
        "a webhook-signature with an empty value is refused",
        "a webhook-signature empty is refused",
    },
    DecodesWhatComes: HOSTILE_500,
    HeaderIsThere: {
        "a webhook-signature of characters outside ASCII is refused",
        "an event without webhook-id is refused",
        "an event without webhook-timestamp is refused",
        "an event without webhook-signature is refused",
    },
    FirstOfTwo: {"an event with two different webhook-id is refused"},
    SignsWhatItParsed: {"the same JSON in other bytes is refused"},
    Latin1: {"text outside ASCII is acknowledged"},
    NoSignature: {
        "a flipped bit in the body is refused",
        "another key's signature is refused",
        "a webhook-signature of another version is refused",
        "a webhook-signature with two commas is refused",
        "a webhook-signature with a double space is refused",
    },
    WithoutId: {"a flipped bit in webhook-id is refused"},
    OneStoreForAll: {"the same event at two endpoints has two effects"},
    NoStore: {"a retry has no second effect", "copies at once have one effect"},
    LooksThenActs: {"copies at once have one effect"},
    CopyIsAnError: {"a retry has no second effect", "copies at once have one effect"},
    KnownTypesAlone: {"an unknown type is acknowledged"},
    FirstVersionAlone: {"a newer schema_version is acknowledged"},
    KnownMembersAlone: {"members that are unknown are acknowledged"},
    NoLimit: {"a body over the limit is refused"},
    SmallLimit: {"the largest body that is sent is acknowledged"},
    TellsTheSignature: {"a refusal holds nothing secret"},
    TellsTheSecret: {"a refusal holds nothing secret"},
    TellsTheTraceback: {"a refusal holds nothing secret"},
    OneSecret: {"the secret that is being replaced still verifies"},
    EverySecret: {"a secret that has been replaced is refused"},
    Slow: {"a valid event is acknowledged", "eight events at once are acknowledged"},
}


@contextmanager
def served(receiver: Good) -> Iterator[Target]:
    """The receiver at /one and /two, over HTTP; /effects counts."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            try:
                body = read_body(self.rfile, self.headers["content-length"], limit=receiver.limit)
                status, told = receiver.handle(self.path, self.headers, body)
            except Refused as refused:
                status, told = refused.status, b""
            except Exception:  # noqa: BLE001 - as any web framework does
                status, told = 500, b""
            self.answer(status, told)

        def do_GET(self) -> None:
            self.answer(200, b'{"count": %d}' % receiver.effects)

        def answer(self, status: int, told: bytes) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        base = f"http://127.0.0.1:{server.server_port}"
        try:
            yield Target(f"{base}/one", SECRET, OLD, EXPIRED, f"{base}/two", f"{base}/effects", grace=0)
        finally:
            server.shutdown()
            thread.join()


def verdicts(target: Target, names: set[str]) -> dict[str, str]:
    return {each.name: each.examine(target).verdict for each in CHECKS if each.name in names}


def test_a_good_receiver_passes_every_check(tmp_path: Path) -> None:
    with served(Good(tmp_path)) as target:
        findings = [check.examine(target) for check in CHECKS]
    assert [asdict(each) for each in findings if each.verdict != PASSED] == []


def test_a_receiver_by_the_letter_passes_too_but_for_its_limit(tmp_path: Path) -> None:
    with served(Careless(tmp_path)) as target:
        findings = [check.examine(target) for check in CHECKS]
    assert [asdict(each) for each in findings if each.verdict != PASSED] == []


def test_each_check_has_a_mistake_that_it_finds() -> None:
    found = set[str]().union(*MISTAKES.values())
    # Of these, no receiver that takes the others right would be wrong: they only widen the net.
    assert {check.name for check in CHECKS} - found == {
        "a flipped bit in webhook-timestamp is refused",
        "a webhook-signature of 10 KB is refused",
        "a webhook-timestamp with a blank in it is refused",
        "a webhook-timestamp that is infinite is refused",
    }


@pytest.mark.parametrize("kind", MISTAKES, ids=lambda kind: kind.__name__)
def test_a_mistake_is_found_by_its_checks(kind: type[Good], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract, "PATIENCE", 0.5)  # for effects that never come
    if kind is Slow:
        monkeypatch.setattr(contract, "QUICK", 0.1)
    with served(kind(tmp_path)) as target:
        found = verdicts(target, MISTAKES[kind])
        right = verdicts(target, {"a valid event is acknowledged"} - MISTAKES[kind])
    assert found == dict.fromkeys(MISTAKES[kind], FAILED)
    assert set(right.values()) <= {PASSED}


def test_without_effects_to_count_nothing_is_claimed(tmp_path: Path) -> None:
    with served(NoStore(tmp_path)) as target:
        bare = Target(target.url, SECRET)
        found = [check.examine(bare) for check in CHECKS]
    unseen = {each.check for each in found if each.verdict == NOT_OBSERVABLE}
    assert unseen == {
        "a retry has no second effect",
        "copies at once have one effect",
        "the same event at two endpoints has two effects",
        "the secret that is being replaced still verifies",
        "a secret that has been replaced is refused",
    }
    assert all("--" in each.advice for each in found if each.verdict == NOT_OBSERVABLE)


def test_a_receiver_that_is_not_there_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        url = f"http://127.0.0.1:{server.server_port}/?token=secret"
    assert contract.main([url, "--secret", SECRET, "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["passed"] == 0
    assert "?" not in said["url"]
    assert {"check", "verdict", "sent", "got", "advice"} == set(said["checks"][0])
    assert "no answer" in said["checks"][0]["got"]


def test_the_command_tells_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served(OneStoreForAll(tmp_path)) as target:
        told = [target.url, "--secret", SECRET, "--second-url", target.second_url, "--grace", "0"]
        assert contract.main(told) == 0
        assert "not observable  a retry has no second effect" in capsys.readouterr().out
        assert contract.main([*told, "--effects-url", target.effects_url]) == 1
    said = capsys.readouterr().out
    assert "passed          a retry has no second effect" in said
    assert "do: Remember ids for each endpoint" in said
    assert SECRET not in said


def test_effects_that_cannot_be_counted_fail(tmp_path: Path) -> None:
    with served(Good(tmp_path)) as target:
        nowhere = Target(target.url, SECRET, effects_url="http://127.0.0.1:9/")
        check = next(each for each in CHECKS if each.name == "a retry has no second effect")
        assert check.examine(nowhere).verdict == FAILED


NO_SECRETS = {
    "empty": "",
    "no key": "whsec_",
    "other kind": "whsk_" + SECRET[6:],
    "short": "whsec_AAAA",
    "no base64": "whsec_%%%",
}


@pytest.mark.parametrize("secret", NO_SECRETS.values(), ids=NO_SECRETS.keys())
def test_a_secret_that_is_none_is_refused(secret: str) -> None:
    with pytest.raises(SystemExit) as ended:
        contract.main(["http://127.0.0.1:9/", "--secret", secret])
    assert ended.value.code == 2


@pytest.mark.parametrize(
    "runner", [["webhooks.contract"], ["pytest", "-q", "--pyargs", "webhooks.contract"]], ids=" ".join
)
def test_two_files_copied_elsewhere_run(runner: list[str], tmp_path: Path) -> None:
    (tmp_path / "webhooks").mkdir()
    for name in ("contract.py", "forgery.py"):
        shutil.copy(settings.BASE_DIR / "webhooks" / name, tmp_path / "webhooks")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO", "COV", "PYTEST"))}
    with served(Good(tmp_path)) as target:
        done = subprocess.run(
            [sys.executable, "-m", *runner],
            cwd=tmp_path,
            env=kept | {"PYTHONPATH": str(tmp_path), "WEBHOOK_URL": target.url, "WEBHOOK_SECRET": SECRET},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(rf"\b{len(CHECKS) - 5} passed", done.stdout)
