"""The web process: gunicorn's entry point, and the only one that uses psycopg's connection pool."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "cleanup_project.settings")
os.environ["WEB_PROCESS"] = "1"

from django.core.wsgi import get_wsgi_application

from cleanup_project.base import streams

application = streams.bounded(get_wsgi_application())
