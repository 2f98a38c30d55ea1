from django.apps import AppConfig


class BaseConfig(AppConfig):
    name = "cleanup_project.base"
    label = "base"
    verbose_name = "Alarms, people and audit"

    def ready(self) -> None:
        from allauth.account.signals import authentication_step_completed
        from allauth.mfa.signals import authentication_failed
        from django.contrib.auth.signals import user_logged_in
        from django.db.models.signals import post_migrate

        from cleanup_project.base import checks, queue, queue_checks, roles  # noqa: F401 - checks register
        from cleanup_project.base.signin import adapters, proof, sessions

        user_logged_in.connect(sessions.begin)
        authentication_step_completed.connect(proof.step_completed)
        authentication_failed.connect(adapters.factor_failed)

        post_migrate.connect(roles.bring_groups_in_line)
        post_migrate.connect(queue.write_schedule)
