"""Settings, read from the environment by typed readers. `.env.example` lists every variable.

`DATABASE_URL` unset means an embedded PostgreSQL in `.data/`, for the demo and the tests; set, it means that server and
nothing else.
"""

import sys
from pathlib import Path
from typing import Any

import django_stubs_ext
from django.core.exceptions import ImproperlyConfigured

from cleanup_project.base import brokers, limits
from cleanup_project.environment import (
    env_addresses,
    env_bool,
    env_hours,
    env_int,
    env_keys,
    env_list,
    env_matching,
    env_minutes,
    env_networks,
    env_ports,
    env_positive,
    env_str,
    env_times,
    env_token,
    env_trigger_secrets,
    parse_database_url,
)

django_stubs_ext.monkeypatch()  # lets Django's generic classes be subscripted at run time

BASE_DIR = Path(__file__).resolve().parent.parent


def database() -> dict[str, Any]:
    """The one database: PostgreSQL, UTC, READ COMMITTED, bounded waits."""
    if not EMBEDDED_DATABASE:
        config = parse_database_url(env_str("DATABASE_URL"))
    else:
        from cleanup_project.base import postgres

        config = {**postgres.ensure_running(DATA_DIR).settings, "OPTIONS": {}}
    config["ENGINE"] = "django.db.backends.postgresql"
    limits = "-c lock_timeout=5000 -c idle_in_transaction_session_timeout=60000"
    config["OPTIONS"]["options"] = f"{config['OPTIONS'].get('options', '')} {limits}".strip()
    # Nothing is prepared by being repeated, only what asks for it (sqlfiles.row); None would refuse that, too.
    config["OPTIONS"]["prepare_threshold"] = sys.maxsize
    if WEB_PROCESS:
        # psycopg's pool does not survive a fork, and django-q2 forks its workers: for the web process alone.
        config["OPTIONS"]["pool"] = {"min_size": 1, "max_size": env_int("DATABASE_POOL_SIZE", 8), "timeout": 10}
    else:
        config["CONN_MAX_AGE"] = 60
        config["CONN_HEALTH_CHECKS"] = True
    return config


DEBUG = env_bool("DEBUG")
DATA_DIR = Path(env_str("DATA_DIR") or BASE_DIR / ".data").resolve()
EXPORT_DIR = Path(env_str("EXPORT_DIR") or DATA_DIR / "exports").resolve()  # one place for the web process and workers
EMBEDDED_DATABASE = not env_str("DATABASE_URL")
WEB_PROCESS = env_bool("WEB_PROCESS")  # set by cleanup_project.wsgi, not by people

SECRET_KEY = env_str("SECRET_KEY")
if not SECRET_KEY:
    # Fit for one machine only: `check --deploy` (security.W009) fails on it.
    SECRET_KEY = "django-insecure-local-development-key"  # noqa: S105

# What seals secrets in the database; the first key seals, all of them open. Unset: derived from SECRET_KEY (base.E004).
ENCRYPTION_KEYS = env_keys("ENCRYPTION_KEYS")

ALLOWED_HOSTS = env_list("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = env_list("CSRF_TRUSTED_ORIGINS")

INSTALLED_APPS = [
    # First: base's admin, which others import, takes their pages away.
    "django_q",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "cleanup_project.operations",
    "ledger",
    "retention",
    "webhooks",
    "cleanup_project.base",
    "cleanup_project.base.navigation.Admin",  # django.contrib.admin, with our site
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "django_structlog",
    "django_htmx",
    "django_filters",
    "csp",
]

MIDDLEWARE = [
    "cleanup_project.operations.watch.door.door",  # first: what asks has no session, and may know no host name of ours
    "cleanup_project.base.requestids.numbered",
    "cleanup_project.operations.api.edge.edge",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "cleanup_project.base.signin.sessions.end_when_over",
    "django_structlog.middlewares.RequestMiddleware",
]

DJANGO_STRUCTLOG_TRUST_UPSTREAM_REQUEST_ID = True  # which is `requestids`, and not the client

ROOT_URLCONF = "cleanup_project.urls"
WSGI_APPLICATION = "cleanup_project.wsgi.application"
AUTH_USER_MODEL = "base.User"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {"default": database()}

# Both queues in one cluster: for the demo and small installations. The same for every process of an installation.
ONE_CLUSTER = env_bool("ONE_CLUSTER")
WORKERS = env_int("WORKERS", 2 if ONE_CLUSTER else 4)
Q_CLUSTER: dict[str, Any] = {
    "name": "cleanup",  # the key of the queue *control*, and what messages are signed with, whichever their queue
    **brokers.options(env_str("BROKER")),
    "workers": WORKERS if ONE_CLUSTER else 1,
    "queue_limit": WORKERS if ONE_CLUSTER else 1,
    "bulk": 1,
    "poll": 0.5,  # of the ORM broker
    "cache": "process",  # for django-q2's own statistics, which nobody reads, and which cost two writes a second
    "timeout": limits.TASK_TIMEOUT,
    "retry": limits.QUEUE_RETRY,
    "max_attempts": 1,  # with ack_failures: the queue repeats no error, the ledger decides
    "ack_failures": True,
    "save_limit": -1,  # evidence lives in the ledger
    "catch_up": False,
    "time_zone": "UTC",
    "guard_cycle": 0.5,
    "recycle": 200,
    "max_rss": 400_000,  # kilobytes
    "ALT_CLUSTERS": {"work": {"workers": WORKERS, "queue_limit": WORKERS, "scheduler": False}},
}

# What all web processes must know of each other: failed attempts above all (base.E007). The table comes with the migrations.
CACHES: dict[str, dict[str, Any]] = {
    "default": {
        "BACKEND": "django.core.cache.backends.db.DatabaseCache",
        "LOCATION": "base_cache",
        "OPTIONS": {"MAX_ENTRIES": 100_000},  # more than anybody can fill within the five minutes that attempts count
    },
    # What pages show for some seconds after it was made: not worth a write to the database.
    "process": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
}

# Signing in (docs/signin.md). Passwords are the way in for emergencies where there is an identity provider.
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",  # read, and replaced at the next sign-in
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "my-work"
ACCOUNT_ADAPTER = "cleanup_project.base.signin.adapters.Account"
ACCOUNT_LOGOUT_REDIRECT_URL = LOGIN_URL
ACCOUNT_SESSION_REMEMBER = True  # how long is decided by `signin.sessions`
ACCOUNT_EMAIL_VERIFICATION = "none"
# Who asks: the last address of X-Forwarded-For is what our own proxy saw.
ALLAUTH_TRUSTED_PROXY_COUNT = 1 if env_bool("BEHIND_TLS_PROXY") else 0

# Whoever decides has a second factor; off for the demo (base.E005).
MFA_REQUIRED = env_bool("MFA_REQUIRED", default=True)
MFA_ADAPTER = "cleanup_project.base.signin.adapters.Factors"
MFA_TOTP_ISSUER = "Cleanup"
MFA_TOTP_TOLERANCE = 1  # half a minute either way, for clocks that are a little off
MFA_RECOVERY_CODES_SHOW_ONCE = True
MFA_ALLOW_UNVERIFIED_EMAIL = True  # addresses are written down by administrators
# Before a decision one shows again who one is, unless it was less than so long ago.
REAUTHENTICATION_SECONDS = ACCOUNT_REAUTHENTICATION_TIMEOUT = env_minutes("REAUTHENTICATION_MINUTES", 10)

# An identity provider by OpenID Connect; unset, people sign in with passwords alone.
OIDC_ISSUER = env_str("OIDC_ISSUER").strip()
OIDC_NAME = env_str("OIDC_NAME", "your organisation")
OIDC_CLIENT_ID = env_str("OIDC_CLIENT_ID")
OIDC_CLIENT_SECRET = env_str("OIDC_CLIENT_SECRET")
OIDC_SCOPES = env_list("OIDC_SCOPES", "openid,profile,email")
# What the provider says where a second factor was shown to it: one of these ways (RFC 8176), or one of these classes.
OIDC_MFA_AMR = env_list("OIDC_MFA_AMR", "mfa")
OIDC_MFA_ACR = env_list("OIDC_MFA_ACR")
SOCIALACCOUNT_ADAPTER = "cleanup_project.base.signin.provider.Provider"
SOCIALACCOUNT_PROVIDERS = {
    "openid_connect": {
        "APPS": [
            {
                "provider_id": "oidc",
                "name": OIDC_NAME,
                "client_id": OIDC_CLIENT_ID,
                "secret": OIDC_CLIENT_SECRET,
                "settings": {
                    "server_url": OIDC_ISSUER,
                    "scope": OIDC_SCOPES,
                    "uid_field": "issuer_and_subject",  # `signin.provider` puts it there
                    "oauth_pkce_enabled": True,
                },
            }
        ]
    }
}

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True

STATIC_URL = "static/"
# Where `collectstatic` puts the files and WhiteNoise finds them; without it they are served from the applications.
STATIC_ROOT = env_str("STATIC_ROOT") or None
WHITENOISE_USE_FINDERS = STATIC_ROOT is None
WHITENOISE_ALLOW_ALL_ORIGINS = False
# Collected files get names that change with what they hold, so that browsers may keep them for ever, and are compressed once.
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if STATIC_ROOT
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}

# HTTPS is assumed; the demo, which speaks plain http on loopback, switches it off.
HTTPS = env_bool("HTTPS", default=not DEBUG)
SECURE_SSL_REDIRECT = HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = HTTPS
SECURE_HSTS_PRELOAD = HTTPS
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
CSRF_COOKIE_NAME = "__Host-csrf" if HTTPS else "cleanup-csrf"
SESSION_COOKIE_NAME = "__Host-session" if HTTPS else "cleanup-session"
SESSION_COOKIE_SAMESITE = "Lax"  # Strict would lose the way back from the identity provider
SESSION_ENGINE = "cleanup_project.base.signin.store"
SESSION_COOKIE_AGE = 8 * 3600
SESSION_IDLE_SECONDS = env_minutes("SESSION_IDLE_MINUTES", 30)
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if env_bool("BEHIND_TLS_PROXY") else None
X_FRAME_OPTIONS = "DENY"
# Nothing inline, nothing evaluated, nothing from another host.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "connect-src": ["'self'"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
    }
}

SILENCED_SYSTEM_CHECKS = env_list("SILENCED_SYSTEM_CHECKS")  # by name, once judged: webhooks.E004

# Webhooks. Plain http and addresses of one's own network are for the demo, for tests and for a network that is trusted:
# `check --deploy` (webhooks.E001, webhooks.E004) fails on both.
WEBHOOK_ALLOW_HTTP = env_bool("WEBHOOK_ALLOW_HTTP")
WEBHOOK_ALLOW_CIDRS = env_networks("WEBHOOK_ALLOW_CIDRS")
WEBHOOK_PORTS = env_ports("WEBHOOK_PORTS", "443,8443")  # every port where plain http is allowed
WEBHOOK_EGRESS_PROXY = env_str("WEBHOOK_EGRESS_PROXY").strip()  # webhooks.E003 checks it
WEBHOOKS_SETTLED_TASK = "ledger.tasks.notify"  # rung when events were settled
HOLD_PLACED_TASK = "ledger.tasks.hold_placed"  # rung with each new legal hold
STOP_PRESSED_TASK = "ledger.tasks.stop_pressed"  # rung each time the stop switch is pressed

# Triggers from outside (docs/triggers.md). None: there are no such addresses. Several are valid while one replaces another.
TRIGGER_SECRETS = env_trigger_secrets("TRIGGER_SECRETS")

# The API (docs/api.md): requests of one token, by each kind.
API_READS_PER_MINUTE = env_positive("API_READS_PER_MINUTE", 600)
API_WRITES_PER_MINUTE = env_positive("API_WRITES_PER_MINUTE", 60)

# Watching it (docs/operations.md).
TICKED_TASK = "cleanup_project.operations.tasks.watch"  # rung with each tick
METRICS_TOKEN = env_token("METRICS_TOKEN")  # unset: /metrics is not there
DEADLINES = env_times("DEADLINES")  # from when on what waits is overdue, where it is to be other than ours
ALERT_TENANT = env_matching(
    "ALERT_TENANT", "[a-z0-9][a-z0-9-]{0,62}", "the code of a tenant"
)  # whose endpoints are told of every alarm, whoever's it is
ALERT_EMAILS = env_addresses("ALERT_EMAILS")
ALERT_REPEAT_HOURS = env_hours("ALERT_REPEAT_HOURS", 24)  # after which an e-mail tells again of what is still so
SITE_URL = env_matching("SITE_URL", "https?://[^/ ]+", "https:// and a host, without a path")  # stands in e-mails
EMAIL_HOST = env_str("EMAIL_HOST", "localhost")
EMAIL_PORT = env_int("EMAIL_PORT", 25)
EMAIL_HOST_USER = env_str("EMAIL_HOST_USER")
EMAIL_HOST_PASSWORD = env_str("EMAIL_HOST_PASSWORD")
EMAIL_USE_TLS = env_bool("EMAIL_USE_TLS")  # STARTTLS
EMAIL_USE_SSL = env_bool("EMAIL_USE_SSL")  # TLS from the first byte on
if EMAIL_USE_TLS and EMAIL_USE_SSL:
    raise ImproperlyConfigured("Set EMAIL_USE_TLS (STARTTLS) or EMAIL_USE_SSL (TLS from the first byte on), not both.")
EMAIL_TIMEOUT = 10  # seconds; a worker waits for the mail server, and nothing else does
DEFAULT_FROM_EMAIL = env_str("EMAIL_FROM", "cleanup@localhost")

LOGGING_JSON = env_bool("LOG_JSON", default=not sys.stderr.isatty())
LOG_LEVEL = env_str("LOG_LEVEL", "INFO").upper()
LOGGING_CONFIG = "cleanup_project.base.logs.configure"
LOGGING = {"json": LOGGING_JSON, "level": LOG_LEVEL}
