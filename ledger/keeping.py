"""What has come to keep an object since its manifest was judged: a policy that was published or suspended after that.

The longest retention wins, whichever policy states it, and a suspended policy keeps all that it covers. A manifest says what
was so when it was frozen; where policies have changed since, its objects are judged again before they are destroyed.
"""

from collections.abc import Sequence
from typing import Final

from django.db import connection

from cleanup_project.base import clock, sqlfiles
from cleanup_project.base.arrays import array
from ledger.batch import Claimed
from retention import governing, scan
from retention.eligibility import WORDS, Reason
from retention.models import Tenant

# Not these: what is gone is told from a look at the store, and holds have a check of their own.
ASKED_ELSEWHERE: Final = frozenset({Reason.GONE, Reason.HELD, Reason.ELIGIBLE})


def kept(commands: Sequence[Claimed], tenant_id: int) -> dict[int, str]:
    """Why commands may not be executed any more, in words, by command; only those of which that is so."""
    changed = changed_since({each.run_id for each in commands}, tenant_id)
    originals = {each.targets[0].object_version_id: each.id for each in commands if each.run_id in changed}
    if not originals:
        return {}
    now = clock.now()
    rules = governing.of_tenant(Tenant.objects.get(pk=tenant_id), now)
    found = scan.reasons(list(originals), rules, now)
    return {originals[pk]: WORDS[reason] for pk, reason in found.items() if reason not in ASKED_ELSEWHERE}


def changed_since(run_ids: set[int], tenant_id: int) -> set[int]:
    """Those of the runs that judged before a policy of the tenant was last suspended, or a revision came into force."""
    with connection.cursor() as cursor:
        cursor.execute(sqlfiles.read(__file__, "policies_changed.sql"), {"runs": array(run_ids), "tenant": tenant_id})
        return {row[0] for row in cursor.fetchall()}
