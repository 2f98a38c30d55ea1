"""A paginator whose count never scans a large table."""

import json

from django.core.paginator import Paginator
from django.db import OperationalError, connection, models, transaction
from django.utils.functional import cached_property

EXACT_UP_TO = 10_000
COUNT_BUDGET_MS = 800


class CappedPaginator(Paginator[models.Model]):
    """Exact up to `EXACT_UP_TO` rows, the planner's estimate above, `is_estimate` says which.

    The estimate is never below the cap: Django's ChangeList reads the whole queryset when the count is not above one
    page, so a low guess (a table never analysed, a misjudged filter) would load the table.
    """

    is_estimate = False

    @cached_property
    def count(self) -> int:
        queryset = self.object_list
        if not isinstance(queryset, models.QuerySet):
            return len(queryset)
        queryset = queryset.order_by()
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(f"SET LOCAL statement_timeout = {COUNT_BUDGET_MS}")
                counted = queryset.values("pk")[: EXACT_UP_TO + 1].count()
            if counted <= EXACT_UP_TO:
                return counted
        except OperationalError:
            pass  # too slow to count exactly within its budget
        self.is_estimate = True
        plan = json.loads(queryset.explain(format="json"))[0]["Plan"]
        return max(int(plan["Plan Rows"]), EXACT_UP_TO + 1)
