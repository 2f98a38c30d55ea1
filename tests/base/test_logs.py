"""What gunicorn logs has the form of everything else."""

import json
import logging
from typing import Any

from cleanup_project.base import logs


def line(logger: str, message: str, *arguments: Any) -> dict[str, Any]:
    """As the production formatter writes it."""
    formatter = logs.config({"json": True, "level": "INFO"})["formatters"]["structured"]
    options = {name: value for name, value in formatter.items() if name != "()"}
    record = logging.LogRecord(logger, logging.INFO, __file__, 1, message, arguments, None)
    told: dict[str, Any] = json.loads(formatter["()"](**options).format(record))
    return told


def test_a_request_is_told_with_each_fact_under_its_name_and_without_its_query() -> None:
    atoms = {
        "h": "127.0.0.1", "m": "GET", "U": "/admin/find/", "s": "200", "B": 12, "L": "0.031000", "q": "name=secret",
        "{x-forwarded-for}i": "192.0.2.7",
    }  # fmt: skip
    told = line("gunicorn.access", "%(m)s %(U)s %(s)s", atoms)
    assert told.pop("timestamp")
    assert told == {
        "event": "GET /admin/find/ 200", "logger": "gunicorn.access", "level": "info", "from": "127.0.0.1",
        "forwarded_for": "192.0.2.7", "method": "GET", "path": "/admin/find/", "code": "200", "bytes": 12, "seconds": 0.031,
    }  # fmt: skip


def test_other_lines_keep_what_they_say_and_no_more() -> None:
    assert line("gunicorn.error", "Booting worker with pid: %s", 17)["event"] == "Booting worker with pid: 17"
    assert line("elsewhere", "%(m)s", {"m": "x", "L": "1"}).keys() == {"event", "logger", "level", "timestamp"}
