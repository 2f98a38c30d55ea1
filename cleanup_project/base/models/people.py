"""People, the accounts of programs, their sessions, and the rights they hold."""

from typing import Any

from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX
from django.contrib.auth.models import AbstractUser, Permission
from django.contrib.postgres.fields import ArrayField
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.db.models import Q
from django.utils.functional import cached_property

from cleanup_project.base.roles import RIGHTS, SUPERUSER_RIGHTS
from cleanup_project.base.scopes import RIGHTS_OF_PROGRAMS
from cleanup_project.base.signin.store import SessionStore


class User(AbstractUser):
    """A person, or the account of a program. Deactivated, never deleted: decisions keep pointing at who took them.

    A program comes in by a token of the API (`apitokens`) and in no other way: it has no password, no role and no pages.
    """

    tenants = ArrayField(
        models.CharField(max_length=63),
        default=list,
        blank=True,
        help_text="Codes of the tenants whose things this person sees and decides; empty: of every tenant.",
    )
    is_program = models.BooleanField(default=False, editable=False, help_text="It has tokens, and never signs in.")
    rights = ArrayField(
        models.CharField(max_length=32),
        default=list,
        editable=False,
        help_text="Of a program: what its token lets it decide. A person's come from their roles.",
    )

    class Meta(AbstractUser.Meta):
        constraints = [
            models.CheckConstraint(
                condition=Q(is_program=False, rights=[])
                | Q(
                    is_program=True,
                    rights__contained_by=RIGHTS_OF_PROGRAMS,
                    is_staff=False,
                    is_superuser=False,
                    password__startswith=UNUSABLE_PASSWORD_PREFIX,
                ),
                name="program_never_signs_in",
            )
        ]

    @cached_property
    def _role_rights(self) -> frozenset[str]:
        granted = Permission.objects.filter(group__user=self, content_type__app_label="base", codename__in=RIGHTS)
        return frozenset(granted.values_list("codename", flat=True))

    def has_perm(self, perm: str, obj: models.Model | Any | None = None) -> bool:
        """As Django's, except that decisions come from a role alone: a superuser has none by being one.

        A program has the rights of its token, and nothing from any group.
        """
        app, _, right = perm.partition(".")
        if self.is_program:
            return self.is_active and app == "base" and right in self.rights
        if app == "base" and right in RIGHTS and right not in SUPERUSER_RIGHTS:
            return self.is_active and right in self._role_rights
        return super().has_perm(perm, obj)


class Session(AbstractBaseSession):
    """A browser in which somebody signs in. Whose it is stands in a column, so that every one of a person can be ended."""

    person = models.ForeignKey(User, on_delete=models.CASCADE, null=True, related_name="+")

    @classmethod
    def get_session_store_class(cls) -> Any:
        return SessionStore


class Right(models.Model):
    """Carries the permissions of the role matrix; has no table."""

    class Meta:
        managed = False
        default_permissions = ()
        permissions = list(RIGHTS.items())
