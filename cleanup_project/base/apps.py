from django.apps import AppConfig


class BaseConfig(AppConfig):
    name = "cleanup_project.base"
    label = "base"
    verbose_name = "Alarms, people and audit"

    def ready(self) -> None:
        from django.db.models.signals import post_migrate

        from cleanup_project.base import checks, queue, queue_checks, roles  # noqa: F401 - checks register

        post_migrate.connect(roles.bring_groups_in_line)
        post_migrate.connect(queue.write_schedule)
