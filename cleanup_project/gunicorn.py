"""gunicorn's settings for production: `gunicorn -c python:cleanup_project.gunicorn --bind 127.0.0.1:8000`.

The address stands on the command line, since it is a matter of the place. gunicorn's own variables change the rest:
WEB_CONCURRENCY is the number of processes, GUNICORN_CMD_ARGS holds further options ("--threads 16").
"""

import os
from typing import Any, Final

from cleanup_project.base import logs, streams

wsgi_app: Final = "cleanup_project.wsgi"

# Threads, because a process of the default class handles one request at a time and is killed when that takes longer than
# `timeout`: a long download would be cut. Downloads take half of them at most. As many as a process has connections
# (DATABASE_POOL_SIZE).
worker_class: Final = "gthread"
threads: Final = 2 * streams.AT_ONCE
PROCESSES: Final = 2  # where WEB_CONCURRENCY says nothing; the doctor counts with it
workers: Final = int(os.environ.get("WEB_CONCURRENCY") or PROCESSES)

timeout: Final = 60  # of a process that no longer answers its master, not of a request
graceful_timeout: Final = 60  # what a stop or a reload leaves downloads to end in
keepalive: Final = 75  # longer than proxies keep a connection, so that theirs is never closed under a request

# Since version 25.1 gunicorn listens on a Unix socket in the home folder and takes orders from whoever can open it.
control_socket_disable: Final = True
worker_tmp_dir: Final = "/dev/shm" if os.path.isdir("/dev/shm") else None  # noqa: S108 - heartbeats, never on a slow disk

# Whose X-Forwarded-Proto Django believes is decided by BEHIND_TLS_PROXY; gunicorn needs none of it.
forwarded_allow_ips: Final = ""

# One JSON line for each request, without its query, which may name people and objects.
accesslog: Final = "-"
access_log_format: Final = "%(m)s %(U)s %(s)s"
logconfig_dict: Final[dict[str, Any]] = logs.config({"json": True, "level": "INFO"})
