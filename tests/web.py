"""What tests of pages share. Import `quick_pages` into a module to have it there."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.db.models import Model
from django.urls import reverse

from cleanup_project.base import streams, waiting


@pytest.fixture(autouse=True)
def quick_pages(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "REMEMBERED", 0)  # so that the second page of a test asks as much as the first
    settings.SECURE_SSL_REDIRECT = False
    settings.MFA_REQUIRED = False
    settings.STATIC_ROOT = tmp_path  # WhiteNoise warns of a folder that collectstatic has not made yet


def places_taken() -> ExitStack:
    """Every place of this process for an answer that is sent while it is made."""
    held = ExitStack()
    for _ in range(streams.AT_ONCE):
        held.enter_context(streams.place())
    return held


def url(model: type[Model], page: str, *args: object) -> str:
    """The address of an admin page: changelist, add, change, history, or one of a verb."""
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=args)
