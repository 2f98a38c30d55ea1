"""Structured logs: one event a line, JSON for machines, aligned text for a terminal.

Bind what the work is about, and every line of it carries that: `with structlog.contextvars.bound_contextvars(run=run.key,
command=key): ...`. django-structlog adds the request id and the user id.
"""

import logging
import logging.config
from typing import TypedDict

import structlog


class LogOptions(TypedDict):
    json: bool
    level: str


def configure(options: LogOptions) -> None:
    """Django's `LOGGING_CONFIG` callable: stdlib and structlog records share one formatter on standard error."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    renderer: list[structlog.typing.Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if options["json"]
        else [structlog.dev.ConsoleRenderer(colors=False)]
    )
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {
                "structured": {
                    "()": structlog.stdlib.ProcessorFormatter,
                    "foreign_pre_chain": shared,
                    "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
                }
            },
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "structured"}},
            # It says of each message that it came, began and went; the tasks' own lines say more.
            "loggers": {"django-q": {"level": "WARNING"}},
            "root": {"handlers": ["stderr"], "level": options["level"]},
        }
    )
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
