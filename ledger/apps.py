from django.apps import AppConfig


class LedgerConfig(AppConfig):
    name = "ledger"
    verbose_name = "Ledger"

    def ready(self) -> None:
        from ledger import bulk, reviewing  # noqa: F401 - importing registers their kinds of job
