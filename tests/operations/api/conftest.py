from pathlib import Path
from typing import Any

import pytest

from tests.ledger.acting import Acting, build


@pytest.fixture(autouse=True)
def over_plain_http(settings: Any, tmp_path: Path) -> None:
    settings.SECURE_SSL_REDIRECT = False
    settings.STATIC_ROOT = tmp_path  # WhiteNoise warns of a folder that collectstatic has not made yet


@pytest.fixture
def world(db: None) -> Acting:
    return build()
