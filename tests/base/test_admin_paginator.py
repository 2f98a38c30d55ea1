"""The capped count: exact while that is cheap, an estimate afterwards, and no trace in the transaction around it."""

from typing import Any

import pytest
from django.db import connection, transaction

from cleanup_project.base import paginator
from cleanup_project.base.paginator import EXACT_UP_TO, CappedPaginator
from retention.models import Tenant

pytestmark = pytest.mark.django_db


@pytest.fixture
def tenants() -> None:
    Tenant.objects.bulk_create(Tenant(code=f"t{number}", name="") for number in range(5))


def statement_timeout() -> Any:
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        return cursor.fetchone()[0]


def test_few_rows_are_counted_exactly(tenants: None) -> None:
    pages = CappedPaginator(Tenant.objects.order_by("code"), 2)
    assert (pages.count, pages.num_pages, pages.is_estimate) == (5, 3, False)
    assert [tenant.code for tenant in pages.page(3)] == ["t4"]
    assert [tenant.code for tenant in pages.page(99)] == ["t4"]
    assert [tenant.code for tenant in pages.page(-1)] == ["t0", "t1"]
    assert statement_timeout() == "0"


def test_nothing_is_one_empty_page(tenants: None) -> None:
    pages = CappedPaginator(Tenant.objects.none(), 2)
    assert (pages.count, pages.num_pages, list(pages.page(1))) == (0, 1, [])


def test_a_count_that_takes_too_long_is_estimated_above_the_cap(tenants: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paginator, "COUNT_BUDGET_MS", 20)
    slow = Tenant.objects.extra(where=["pg_sleep(0.05) IS NOT NULL"])
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = '7s'")
        pages = CappedPaginator(slow, 100)
        assert (pages.count, pages.is_estimate) == (EXACT_UP_TO + 1, True)
        assert statement_timeout() == "7s"
    assert pages.num_pages == EXACT_UP_TO // 100
