"""What the doctor says: one line for each thing it looked at."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"  # it works, and a person should know
    FAULT = "fault"  # something of the product does not work, or a promise of it does not hold
    NOT_ASKED = "not asked"  # nothing is known: the question could not be put, or was not to be


@dataclass(frozen=True, slots=True)
class Finding:
    """`seen`: what is so, with its numbers. `advice`: what to do; never empty, except where all is well."""

    subject: str
    verdict: Verdict
    seen: str
    advice: str = ""

    def as_json(self) -> dict[str, str]:
        return {"subject": self.subject, "verdict": self.verdict, "seen": self.seen, "advice": self.advice}


def ok(subject: str, seen: str) -> Finding:
    return Finding(subject, Verdict.OK, seen)


def warning(subject: str, seen: str, advice: str) -> Finding:
    return Finding(subject, Verdict.WARNING, seen, advice)


def fault(subject: str, seen: str, advice: str) -> Finding:
    return Finding(subject, Verdict.FAULT, seen, advice)


def not_asked(subject: str, seen: str, advice: str) -> Finding:
    return Finding(subject, Verdict.NOT_ASKED, seen, advice)
