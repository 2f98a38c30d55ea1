"""What the settings, the environment and the disk of this process say, without a look at any network."""

import filecmp
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from django.conf import settings
from django.contrib.staticfiles import finders
from django.core import checks

from cleanup_project.base import display
from cleanup_project.operations.doctor.findings import Finding, fault, not_asked, ok, warning

EXAMPLE: Final = ".env.example"
ALIKE: Final = 0.8  # of `difflib`'s ratio: WORKER is meant to be WORKERS, and HOST is not meant to be HTTPS
SAFE: Final = "Leave HTTPS unset: 0 is for plain http on loopback."
# Django's own checks, by the variable that decides each here.
BY_VARIABLE: Final = {
    **dict.fromkeys(("security.W004", "security.W008", "security.W012", "security.W016"), SAFE),
    **dict.fromkeys(("security.W010", "security.W011"), SAFE),
    "security.W009": "Set SECRET_KEY to 50 random characters or more, the same on every host, and keep it.",
    "security.W018": "Leave DEBUG unset.",
    "security.W020": "Set ALLOWED_HOSTS to the names that people use for this site.",
}
ROOM: Final = 1 << 30  # bytes: a million receipts are about as much


def system_checks(*, databases: list[str]) -> Iterator[Finding]:
    """What `manage.py check --deploy` finds, a line each; those of the database where it answers."""
    subject = "settings"
    messages = checks.run_checks(include_deployment_checks=True, databases=databases)
    for each in messages:
        if each.is_silenced():
            continue
        say = fault if each.level >= checks.ERROR else warning
        hint = each.hint or BY_VARIABLE.get(str(each.id)) or f"Correct what it names; the documents explain {each.id}."
        yield say(subject, f"{' '.join(each.msg.split())} ({each.id})", " ".join(hint.split()))
    silenced = sorted({str(each.id) for each in messages if each.is_silenced()})
    if silenced:
        words = f"SILENCED_SYSTEM_CHECKS keeps quiet about what is so: {', '.join(silenced)}."
        yield warning(subject, words, "Take from it what nobody has judged.")
    if not messages:
        yield ok(subject, "Every check of `manage.py check --deploy` passes.")


def environment() -> Iterator[Finding]:
    """Names that look like ours and that nothing reads: a setting with a slip of the pen has no effect, silently."""
    path = Path(settings.BASE_DIR) / EXAMPLE
    if not path.exists():
        advice = "Copy .env.example to where manage.py stands: it lists the names of every setting."
        yield not_asked("environment", f"{path} is not there, so it is not known which variables are read.", advice)
        return
    known = documented(path.read_text())
    strangers = unknown(list(os.environ), known)
    for name, meant in strangers.items():
        advice = f"Write {meant} if that was meant; otherwise unset {name}." if meant else f"Unset {name}."
        yield warning("environment", f"{name} is set, and nothing reads it.", advice)
    if not strangers:
        yield ok("environment", f"No variable is set that looks like one of the {len(known)} settings and is none.")


def documented(text: str) -> set[str]:
    """The names that .env.example lists."""
    return set(re.findall(r"^#? ?([A-Z][A-Z0-9_]*)=", text, re.MULTILINE))


def unknown(names: list[str], known: set[str]) -> dict[str, str]:
    """Of the names that are set, those that are almost a setting, or begin as several do; with the one that is meant."""
    beginnings = Counter(name.partition("_")[0] for name in known if "_" in name)
    found = {}
    for name in sorted(set(names) - known):
        meant = get_close_matches(name.upper(), known, n=1, cutoff=ALIKE)
        family, _, rest = name.upper().partition("_")
        if meant or (rest and beginnings[family] > 1):
            found[name] = meant[0] if meant else ""
    return found


def static_files() -> Iterator[Finding]:
    """Whether what browsers are given is there, and is of this version."""
    subject = "static files"
    if not settings.STATIC_ROOT:
        yield ok(subject, "STATIC_ROOT is not set: they are served from the applications.")
        return
    missing, old, count = [], [], 0
    for finder in finders.get_finders():
        for name, storage in finder.list([]):
            count += 1
            there = Path(settings.STATIC_ROOT) / name
            if not there.exists():
                missing.append(name)
            elif not filecmp.cmp(storage.path(name), there, shallow=False):
                old.append(name)
    if missing or old:
        words = f"Of {count} files, {len(missing)} are not in {settings.STATIC_ROOT} and {len(old)} differ there"
        advice = "Run `manage.py collectstatic --noinput`: pages would come without their style, or with an old one."
        yield fault(subject, f"{words}, for example {(missing + old)[0]}.", advice)
    else:
        yield ok(subject, f"{count} files are in {settings.STATIC_ROOT}, as the applications have them.")


def export_folder() -> Iterator[Finding]:
    """Whether files of exports can be written there. It is made when the first one is: then its parent decides."""
    subject, place = "export folder", Path(settings.EXPORT_DIR)
    existing = next(each for each in (place, *place.parents) if each.exists())
    advice = (
        f"Let the web process and every worker write to {place}, a place that all of them share, or set EXPORT_DIR."
    )
    try:
        with TemporaryFile(dir=existing) as file:
            file.write(b"doctor")
            file.flush()
    except OSError as error:
        yield fault(subject, f"Nothing can be written to {existing}: {error.strerror}.", advice)
        return
    free = shutil.disk_usage(existing).free
    seen = f"{existing} can be written to; {display.human_size(free)} are free."
    if free < ROOM:
        yield warning(subject, seen, "Make room: an export of a million receipts is about a gibibyte.")
    else:
        yield ok(subject, seen)
