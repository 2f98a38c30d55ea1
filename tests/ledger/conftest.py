"""For every test of the ledger."""

import pytest

from ledger import claim


@pytest.fixture(autouse=True)
def unhurried_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim limits its transaction, which in most tests is the whole test's and would outlive the claim."""
    monkeypatch.setattr(claim, "CLAIM_SECONDS", 3600)
