from django.apps import AppConfig


class OperationsConfig(AppConfig):
    name = "cleanup_project.operations"
    label = "operations"
    verbose_name = "Operations"
