"""Structured logs: one event a line, JSON for machines, aligned text for a terminal.

Bind what the work is about, and every line of it carries that: `with structlog.contextvars.bound_contextvars(run=run.key,
command=key): ...`. django-structlog adds the request id and the user id.
"""

import logging.config
from typing import Any, Final, TypedDict

import structlog
from structlog.typing import EventDict, Processor

# What gunicorn tells of a request, by the names that it knows it by.
OF_REQUESTS: Final = {
    "from": "h",
    "forwarded_for": "{x-forwarded-for}i",
    "method": "m",
    "path": "U",
    "code": "s",
    "bytes": "B",
}
SHARED: Final[list[Processor]] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
]


class LogOptions(TypedDict):
    json: bool
    level: str


def configure(options: LogOptions) -> None:
    """Django's `LOGGING_CONFIG` callable."""
    logging.config.dictConfig(config(options))
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def config(options: LogOptions) -> dict[str, Any]:
    """For `dictConfig`: stdlib and structlog records share one formatter on standard error, gunicorn's included."""
    renderer: list[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if options["json"]
        else [structlog.dev.ConsoleRenderer(colors=False)]
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "structured": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": [*SHARED, tell_request],
                "pass_foreign_args": True,
                "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
            }
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "structured"}},
        "loggers": {
            # It says of each message that it came, began and went; the tasks' own lines say more.
            "django-q": {"level": "WARNING"},
            "gunicorn.error": {"handlers": [], "propagate": True},
            "gunicorn.access": {"handlers": [], "propagate": True},
        },
        "root": {"handlers": ["stderr"], "level": options["level"]},
    }


def tell_request(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """A structlog processor: gunicorn's line of a request also has each fact under a name of its own."""
    atoms = event.pop("positional_args", None)
    if event.get("logger") == "gunicorn.access" and isinstance(atoms, dict):
        told = {name: atoms[atom] for name, atom in OF_REQUESTS.items()}
        event.update(told, seconds=float(atoms["L"]))
    return event
