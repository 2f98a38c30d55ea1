"""What a receiver promises, as checks that its team runs against its own endpoint. Needs the standard library alone.

    python -m webhooks.contract URL --secret whsec_… [--effects-url URL] [--json]
    WEBHOOK_URL=… WEBHOOK_SECRET=… pytest --pyargs webhooks.contract

It sends signed events of an asset that does not exist, and forgeries of them: run it against a receiver whose effects do not
matter. To run it elsewhere, copy this file and `forgery.py` into a folder `webhooks`. Neither shares code with
`webhooks.receiver`, so that one can prove the other.
"""

import argparse
import base64
import json
import math
import os
import sys
import time
import unittest
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from webhooks.forgery import (
    PATIENCE,
    Answer,
    Make,
    Request,
    Target,
    around_signature,
    at,
    doubled,
    effects,
    event,
    flipped_bodies,
    flipped_headers,
    new_id,
    other_key,
    other_secret,
    post,
    sign,
    signed_again,
    stamped,
    truncated,
    with_signature,
    without,
    written_differently,
)

PASSED, FAILED, NOT_OBSERVABLE = "passed", "failed", "not observable"
REFUSALS: Final = (400, 401, 403)
QUICK: Final = 5  # seconds within which a receiver acknowledges
TOLERANCE: Final = 300
LARGEST: Final = 64 * 1024
TOO_LARGE: Final = 8 * 1024 * 1024
COPIES: Final = 4


@dataclass(frozen=True)
class Finding:
    """What one check found; `advice` is what to do, unless it passed."""

    check: str
    verdict: str
    sent: str
    got: str
    advice: str = ""


Act = Callable[[Target], tuple[str, str, str]]


@dataclass(frozen=True)
class Check:
    """A sentence that is true of a good receiver, and what to do where it is not. `act` returns verdict, sent, got."""

    name: str
    advice: str
    act: Act

    def examine(self, target: Target) -> Finding:
        try:
            verdict, sent, got = self.act(target)
        except ValueError as error:  # of what counts the effects
            verdict, sent, got = FAILED, "GET", str(error)
        advice = {PASSED: "", FAILED: self.advice, NOT_OBSERVABLE: got}[verdict]
        return Finding(self.name, verdict, sent, got, advice)


def refused(make: Make, statuses: Sequence[int] = REFUSALS) -> Act:
    def act(target: Target) -> tuple[str, str, str]:
        for request in make(target):
            answer = post(target.url, request)
            if answer.status not in statuses:
                return FAILED, request.what, str(answer)
        return PASSED, request.what, str(answer)

    return act


def accepted(make: Make) -> Act:
    def act(target: Target) -> tuple[str, str, str]:
        for request in make(target):
            answer = post(target.url, request)
            if not answer.is_success or answer.seconds > QUICK:
                return FAILED, request.what, str(answer)
        return PASSED, request.what, str(answer)

    return act


def given(option: str, act: Act) -> Act:
    """The act, where the option that it needs is given."""
    field = option.removeprefix("--").replace("-", "_")
    return lambda target: act(target) if getattr(target, field) else (NOT_OBSERVABLE, "nothing", f"Give {option}.")


def effect(deliver: Callable[[Target], list[tuple[Request, Answer]]], wanted: int) -> Act:
    """All copies are acknowledged, and they have so many effects together."""

    def act(target: Target) -> tuple[str, str, str]:
        before = effects(target) if target.effects_url else 0
        delivered = deliver(target)
        for request, answer in delivered:
            if not answer.is_success:
                return FAILED, request.what, str(answer)
        sent = "; ".join(request.what for request, _ in delivered)
        if not target.effects_url:
            return NOT_OBSERVABLE, sent, "Acknowledged. Give --effects-url, which counts effects."
        until = time.monotonic() + PATIENCE
        while effects(target) < before + wanted and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(target.grace)
        found = effects(target) - before
        return PASSED if found == wanted else FAILED, sent, f"{found} effects, {wanted} wanted"

    return act


def again(target: Target) -> list[tuple[Request, Answer]]:
    """As a retry comes: the same id and body, a new time and signature."""
    first = event(target)
    later = signed_again(first, target.secret, stamp=b"%d" % (int(first.value("webhook-timestamp")) + 1))
    both = (first, replace(later, what="its retry, a second later"))
    return [(each, post(target.url, each)) for each in both]


def at_once(target: Target) -> list[tuple[Request, Answer]]:
    request = event(target, "the same event at once")
    with ThreadPoolExecutor(COPIES) as pool:
        return [(request, answer) for answer in pool.map(lambda _: post(target.url, request), range(COPIES))]


def to_both(target: Target) -> list[tuple[Request, Answer]]:
    request = event(target, "the same event to both URLs")
    return [(request, post(url, request)) for url in (target.url, target.second_url)]


def judged_before_parsed(target: Target) -> tuple[str, str, str]:
    """A forgery gets one answer, whether its body is JSON or not."""
    right = event(target, "a forgery that is JSON")
    forged = [right, replace(right, body=b"{", what="a forgery that is not JSON")]
    forged += [replace(right, body=b"[" * 50_000, what="a forgery nested 50,000 deep")]
    answers = [(each.what, post(target.url, signed_again(each, other_secret()))) for each in forged]
    for what, answer in answers:
        if answer.status not in REFUSALS or answer.status != answers[0][1].status:
            return FAILED, what, f"{answer}; the first forgery: {answers[0][1]}"
    return PASSED, "; ".join(what for what, _ in answers), str(answers[0][1])


def silent(target: Target) -> tuple[str, str, str]:
    """No answer to a forgery holds the secret, or the signature that would have been right."""
    right = event(target)
    name = "webhook-signature"
    key = base64.b64decode(target.secret.removeprefix("whsec_"))
    digest = base64.b64decode(right.value(name).removeprefix(b"v1,"))
    hidden = [base64.b64encode(key), key.hex().encode(), base64.b64encode(digest), digest.hex().encode()]
    hidden += [key, digest, base64.urlsafe_b64encode(key), base64.urlsafe_b64encode(digest)]
    forgeries = [right.put(name, value) for value in (sign(other_secret(), b"x", b"1", b""), "v1,a,b", "v1,Gr\xfc")]
    for forged in forgeries:
        answer = post(target.url, forged)
        if answer.status is None:
            return FAILED, forged.what, str(answer)
        if any(each in answer.head + answer.body for each in hidden) or b"Traceback (most recent" in answer.body:
            return FAILED, forged.what, f"{answer.status}, with the secret, the right signature or a traceback in it"
    return PASSED, "; ".join(each.what for each in forgeries), "nothing secret"


def many(target: Target) -> tuple[str, str, str]:
    requests = [event(target, "eight events at once", sequence=number + 1) for number in range(8)]
    with ThreadPoolExecutor(len(requests)) as pool:
        answers = list(pool.map(lambda each: post(target.url, each), requests))
    slowest = max(answers, key=lambda each: (not each.is_success, each.seconds))
    verdict = PASSED if slowest.is_success and slowest.seconds <= QUICK else FAILED
    return verdict, requests[0].what, f"the slowest: {slowest}"


ANSWER_FAST: Final = "Verify, remember the event, answer 204; do what takes long after that."
VERIFY: Final = "Compute HMAC-SHA256 over id, timestamp and the raw body; answer 401 to whatever does not fit."
PARSE: Final = "Read the header without trusting it: what has another form is a wrong signature, and no error."
CLOCK: Final = (
    "Refuse a webhook-timestamp more than 300 seconds from now, in either direction; keep the clock right (NTP)."
)
DIGITS: Final = "Take webhook-timestamp as digits alone: [1-9][0-9]*, in ASCII."
IGNORE: Final = "Answer 2xx to types, versions and members that you do not know, and ignore them."
ONCE: Final = "Remember (endpoint, webhook-id) in one transaction with the effect, and answer 2xx to a copy."
SECRETS: Final = (
    "Keep a list of secrets; accept an event that any of them signed, whichever signature of the header it is."
)
HOSTILE: Final = {
    "empty": "", "without a value": "v1", "with an empty value": "v1,", "with two commas": "v1,a,b",
    "that is no base64": "v1,%%%", "of characters outside ASCII": "v1,Grüße", "with a double space": "v1,AAAA  v1,BBBB",
    "of 10 KB": "v1," + "A" * 10_000, "of another version": "v2," + "A" * 43 + "=",
}  # fmt: skip
ODD_TIMES: Final[dict[str, Callable[[int], str]]] = {
    "with a fraction": lambda now: f"{now}.0",
    "with an exponent": lambda now: f"{now / 1e9:.9f}e9",
    "with underscores": lambda now: f"{now:_}",
    "with a sign": lambda now: f"+{now}",
    "with a leading zero": lambda now: f"0{now}",
    "with a blank in it": lambda now: f"{now // 10} {now % 10}",
    "after a no-break space": lambda now: f"\xa0{now}",
    "in Arabic digits": lambda now: "".join(chr(0x660 + int(digit)) for digit in str(now)),
    "in hexadecimal": hex,
    "that is not a number": lambda now: "nan",
    "that is infinite": lambda now: "inf",
}

CHECKS: Final = (
    Check("a valid event is acknowledged", ANSWER_FAST, accepted(lambda target: [event(target)])),
    Check("eight events at once are acknowledged", ANSWER_FAST, many),
    Check(
        "the largest body that is sent is acknowledged", "Accept bodies of up to 64 KB.",
        accepted(lambda target: [event(target, "64 KB", data={"text": "ü" * (LARGEST // 2 - 400)})]),
    ),
    Check(
        "text outside ASCII is acknowledged", "Verify the bytes as they came; do not decode and encode them again.",
        accepted(lambda target: [event(target, "Grüße, 🗑", subject="Grüße, 🗑")]),
    ),
    Check("a flipped bit in the body is refused", VERIFY, refused(flipped_bodies)),
    Check("a flipped bit in webhook-id is refused", VERIFY, refused(flipped_headers("webhook-id"))),
    Check("a flipped bit in webhook-timestamp is refused", VERIFY, refused(flipped_headers("webhook-timestamp"))),
    Check("the same JSON in other bytes is refused", VERIFY, refused(written_differently)),
    Check("another key's signature is refused", VERIFY, refused(other_key)),
    Check("a signature that breaks off is refused", "Compare whole signatures: hmac.compare_digest.", refused(truncated)),
    *(
        Check(f"a webhook-signature {how} is refused", PARSE, refused(with_signature(value)))
        for how, value in HOSTILE.items()
    ),
    *(
        Check(f"an event without {name} is refused", PARSE, refused(without(name)))
        for name in ("webhook-id", "webhook-timestamp", "webhook-signature")
    ),
    Check(
        "an event with two different webhook-id is refused", "Refuse a doubled header: which of them is meant is a guess.",
        refused(doubled("webhook-id", new_id)),
    ),
    Check(
        "unknown versions beside a good signature are passed over", PARSE, accepted(around_signature("v1a,abc v9,x ", " v2"))
    ),
    Check("a good signature is found wherever it stands", SECRETS, accepted(around_signature("v1,AAAA ", " v1,BBBB"))),
    Check(
        "an event of 301 seconds ago is refused", CLOCK,
        refused(at(lambda: math.floor(time.time()) - TOLERANCE - 1, "an event of 301 seconds ago")),
    ),
    Check(
        "an event of 295 seconds ago is acknowledged", CLOCK,
        accepted(at(lambda: math.ceil(time.time()) - TOLERANCE + QUICK, "an event of 295 seconds ago")),
    ),
    Check(
        "an event 306 seconds ahead is refused", CLOCK,
        refused(at(lambda: math.ceil(time.time()) + TOLERANCE + 1 + QUICK, "an event 306 seconds ahead")),
    ),
    Check(
        "an event 299 seconds ahead is acknowledged", CLOCK,
        accepted(at(lambda: math.floor(time.time()) + TOLERANCE - 1, "an event 299 seconds ahead")),
    ),
    *(
        Check(f"a webhook-timestamp {how} is refused", DIGITS, refused(stamped(write)))
        for how, write in ODD_TIMES.items()
    ),
    Check("a retry has no second effect", ONCE, effect(again, 1)),
    Check("copies at once have one effect", ONCE, effect(at_once, 1)),
    Check(
        "the same event at two endpoints has two effects",
        "Remember ids for each endpoint: one store behind two endpoints must not drop the second one's copy.",
        given("--second-url", effect(to_both, 2)),
    ),
    Check(
        "an unknown type is acknowledged", IGNORE,
        accepted(lambda target: [event(target, "test.unknown", type="test.unknown")]),
    ),
    Check(
        "a newer schema_version is acknowledged", IGNORE,
        accepted(lambda target: [event(target, "schema_version 2", schema_version=2)]),
    ),
    Check(
        "members that are unknown are acknowledged", IGNORE,
        accepted(lambda target: [event(target, "an extra member", extra={"nested": [1, None]})]),
    ),
    Check("the signature is judged before the body is parsed", "Verify first, then parse.", judged_before_parsed),
    Check(
        "a body over the limit is refused",
        "Answer 413, by content-length or once the limit is read: no body of ours has more than 64 KB.",
        refused(lambda target: [event(target, "a body of 8 MB", data={"text": "x" * TOO_LARGE})], range(400, 500)),
    ),
    Check("a refusal holds nothing secret", "Answer 401 with an empty body; log the reason on your side.", silent),
    Check(
        "the secret that is being replaced still verifies", SECRETS,
        given("--old-secret", accepted(lambda target: [
            replace(signed_again(event(target), *signers), what=f"signed by {who}")
            for who, signers in {"both": (target.secret, target.old_secret), "the old one": (target.old_secret,)}.items()
        ])),
    ),
    Check(
        "a secret that has been replaced is refused", "Take an old secret off the list when its overlap has ended.",
        given("--expired-secret", refused(lambda target: [
            replace(signed_again(event(target), target.expired_secret), what="signed by the expired secret")
        ])),
    ),
)  # fmt: skip


def pytest_generate_tests(metafunc: Any) -> None:
    metafunc.parametrize("check", CHECKS, ids=[check.name for check in CHECKS])


def test_contract(check: Check) -> None:
    """For pytest, which takes the target from the environment."""
    finding = check.examine(target_of(arguments([])))
    if finding.verdict == NOT_OBSERVABLE:
        raise unittest.SkipTest(finding.advice)
    assert finding.verdict == PASSED, in_words(finding)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Every option can be given in the environment, where a process list does not show it."""
    parser = argparse.ArgumentParser(prog="webhooks.contract", description="Check a receiver of webhooks from outside.")
    url = os.environ.get("WEBHOOK_URL")
    parser.add_argument("url", nargs="?" if url else None, default=url, help="The endpoint. Or $WEBHOOK_URL.")
    for option, words in {
        "secret": "Its secret, whsec_….",
        "old-secret": "A secret that still verifies, while --secret replaces it.",
        "expired-secret": "A secret that does not verify any more.",
        "second-url": "Another endpoint of the same receiver, with the same secret.",
        "effects-url": 'GET says how many effects there were: a number, or {"count": number}.',
    }.items():
        name = "WEBHOOK_" + option.upper().replace("-", "_")
        default = os.environ.get(name, "")
        parser.add_argument(f"--{option}", default=default, help=f"{words} Or ${name}.")
    parser.add_argument(
        "--grace", type=float, default=1.0, metavar="SECONDS", help="To wait for second effects; default 1."
    )
    parser.add_argument("--json", action="store_true", help="Print one JSON object.")
    chosen = parser.parse_args(given)
    for option in ("secret", "old_secret", "expired_secret"):
        if (option == "secret" or getattr(chosen, option)) and not is_secret(getattr(chosen, option)):
            parser.error(f"--{option.replace('_', '-')}: whsec_ and the standard base64 of 24 to 64 bytes is needed")
    return chosen


def is_secret(text: str) -> bool:
    try:
        return (
            text.startswith("whsec_") and 24 <= len(base64.b64decode(text.removeprefix("whsec_"), validate=True)) <= 64
        )
    except ValueError:
        return False


def target_of(chosen: argparse.Namespace) -> Target:
    return Target(**{name: value for name, value in vars(chosen).items() if name != "json"})


def in_words(finding: Finding) -> str:
    if finding.verdict == PASSED:
        return f"passed          {finding.check}"
    told = f"{finding.verdict:15} {finding.check}\n    sent: {finding.sent}\n"
    return told + (
        f"    got: {finding.got}\n    do: {finding.advice}" if finding.verdict == FAILED else f"    {finding.advice}"
    )


def main(given: Sequence[str] | None = None) -> int:
    """Exit code 1 if a check failed."""
    chosen = arguments(given)
    target, findings = target_of(chosen), []
    for check in CHECKS:
        findings.append(check.examine(target))
        if not chosen.json:
            sys.stdout.write(in_words(findings[-1]) + "\n")
            sys.stdout.flush()
    counts = {
        verdict: sum(each.verdict == verdict for each in findings) for verdict in (PASSED, FAILED, NOT_OBSERVABLE)
    }
    told = {"url": target.url.partition("?")[0], **counts, "checks": [asdict(each) for each in findings]}
    sys.stdout.write(
        json.dumps(told) if chosen.json else ", ".join(f"{count} {name}" for name, count in counts.items())
    )
    sys.stdout.write("\n")
    return 1 if counts[FAILED] else 0


if __name__ == "__main__":
    sys.exit(main())
