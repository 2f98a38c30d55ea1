"""A paginator whose count and whose deepest page never scan a large table."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.paginator import Page, Paginator
from django.db import OperationalError, connection, models, transaction
from django.utils.functional import cached_property

EXACT_UP_TO = 10_000
COUNT_BUDGET_MS = 800


@contextmanager
def limited(milliseconds: int) -> Iterator[None]:
    """Within a transaction, cancel statements that take longer; afterwards the limit is what it was before."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('statement_timeout')")
        before = cursor.fetchone()[0]
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(milliseconds)])
        yield
        cursor.execute("SELECT set_config('statement_timeout', %s, true)", [before])


class CappedPaginator(Paginator[models.Model]):
    """Exact up to `EXACT_UP_TO` rows, the planner's estimate above, `is_estimate` says which.

    The estimate is never below the cap: Django's ChangeList reads the whole queryset when the count is not above one
    page, so a low guess (a table never analysed, a misjudged filter) would load the table. Pages end at the cap as well:
    OFFSET reads all that it skips.
    """

    is_estimate = False

    @cached_property
    def count(self) -> int:
        queryset = self.object_list
        if not isinstance(queryset, models.QuerySet):
            return len(queryset)
        queryset = queryset.order_by()
        try:
            with transaction.atomic(), limited(COUNT_BUDGET_MS):
                counted = queryset.values("pk")[: EXACT_UP_TO + 1].count()
            if counted <= EXACT_UP_TO:
                return counted
        except OperationalError:
            pass  # too slow to count exactly within its budget
        self.is_estimate = True
        plan = json.loads(queryset.explain(format="json"))[0]["Plan"]
        return max(int(plan["Plan Rows"]), EXACT_UP_TO + 1)

    @cached_property
    def num_pages(self) -> int:
        return min(super().num_pages, max(1, EXACT_UP_TO // self.per_page))

    def page(self, number: int | str) -> Page[Any]:
        """The page, or the nearest one that there is."""
        return super().page(self.nearest(int(number)))

    def nearest(self, number: int) -> int:
        return min(max(number, 1), self.num_pages)
