# One image for the web process, the worker and the one-off commands; compose.yaml and docs/deployment.md use it.
FROM python:3.11-slim AS build
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
RUN pip install --no-cache-dir uv==0.13.9
WORKDIR /app
COPY pyproject.toml uv.lock ./
RUN uv sync --locked --no-default-groups
COPY . .
# The settings ask for a database and a key; collecting files uses neither.
RUN DATABASE_URL=postgresql://nobody@nowhere/none SECRET_KEY=none STATIC_ROOT=/app/static \
    .venv/bin/python manage.py collectstatic --no-input

FROM python:3.11-slim
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin cleanup \
    && install -d -o cleanup -g cleanup /var/lib/cleanup/exports
COPY --from=build /app /app
ENV PATH=/app/.venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    STATIC_ROOT=/app/static EXPORT_DIR=/var/lib/cleanup/exports LOG_JSON=1
WORKDIR /app
USER cleanup
EXPOSE 8000
# As the proxy would ask, from inside: the first allowed host, over TLS as far as Django knows.
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s CMD ["python", "-c", "import os, urllib.request as web; \
host = os.environ.get('ALLOWED_HOSTS', 'localhost').split(',')[0].strip().lstrip('.'); \
web.urlopen(web.Request('http://127.0.0.1:8000/livez', headers={'Host': host, 'X-Forwarded-Proto': 'https'}), timeout=4)"]
CMD ["gunicorn", "-c", "python:cleanup_project.gunicorn", "--bind", "0.0.0.0:8000"]
