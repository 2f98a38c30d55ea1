"""Rows are locked so that others may still refer to them: a foreign key waits for FOR UPDATE, and for nothing less."""

import re
from pathlib import Path

import pytest

APPS = ("cleanup_project", "ledger", "retention", "webhooks")
TOO_MUCH = {
    "py": re.compile(r"\bFOR UPDATE\b|select_for_update\((?![^)]*no_key=True)"),
    "sql": re.compile(r"\bFOR\s+UPDATE\b", re.IGNORECASE),
}


@pytest.mark.parametrize("suffix", TOO_MUCH)
def test_no_row_is_locked_for_update(suffix: str) -> None:
    sources = [path for app in APPS for path in Path(app).rglob(f"*.{suffix}")]
    assert any("UPDATE" in path.read_text() for path in sources)
    assert [str(path) for path in sources if TOO_MUCH[suffix].search(path.read_text())] == []
