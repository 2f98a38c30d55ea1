"""Sessions in the database, each with the person whose it is: what is stored by person can be ended by person."""

from typing import Any

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends import db


class SessionStore(db.SessionStore):
    @classmethod
    def get_model_class(cls) -> Any:
        from cleanup_project.base.models import Session  # models are not loaded yet when the settings name this module

        return Session

    def create_model_instance(self, data: dict[str, Any]) -> Any:
        row: Any = super().create_model_instance(data)
        row.person_id = data.get(SESSION_KEY)
        return row
