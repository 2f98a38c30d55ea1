"""The rate of each bucket: keys are reserved before they are claimed, and waited for outside of transactions."""

import time
from typing import Final

from django.db import connection

from retention.models import Bucket

MAX_WAIT: Final = 5.0  # seconds; a drain that would have to wait longer leaves the bucket to others
SLOWEST: Final = 1.0  # seconds for each key, however often the store asks to slow down
CUT: Final = 2.0
RAISE: Final = 0.9
QUIET: Final = 30.0  # seconds without a cut before the rate rises, and between two rises


def prepare(bucket: Bucket) -> None:
    """Make the bucket's row, or let it never be faster than the bucket's limit."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO ledger_pace AS p (bucket_id, gap) VALUES (%(bucket)s, %(gap)s) "
            "ON CONFLICT (bucket_id) DO UPDATE SET gap = EXCLUDED.gap WHERE p.gap < EXCLUDED.gap "
            "OR (p.last_cut IS NULL AND p.gap <> EXCLUDED.gap)",
            {"bucket": bucket.pk, "gap": 1 / bucket.keys_per_second},
        )


def reserve(bucket_id: int, keys: int) -> bool:
    """Reserve the time for so many keys and wait for it; False where others have reserved the next MAX_WAIT seconds.

    In autocommit and without read-modify-write, so that drains never wait for one another's transactions.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE ledger_pace
            SET free_at = greatest(free_at, clock_timestamp()) + %(keys)s * gap * interval '1 s'
            WHERE bucket_id = %(bucket)s AND free_at < clock_timestamp() + %(wait)s * interval '1 s'
            RETURNING extract(epoch FROM free_at - clock_timestamp())::float - %(keys)s * gap
            """,
            {"bucket": bucket_id, "keys": keys, "wait": MAX_WAIT},
        )
        row = cursor.fetchone()
    if row is None:
        return False
    if row[0] > 0:
        time.sleep(row[0])
    return True


def correct(bucket_id: int, keys: int) -> None:
    """Give back keys that were reserved and not used (negative), or take more (positive)."""
    if keys:
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE ledger_pace SET free_at = free_at + %s * gap * interval '1 s' WHERE bucket_id = %s",
                [keys, bucket_id],
            )


def slow_down(bucket_id: int) -> None:
    """Halve the rate, at most once a second: ten drains that meet the same throttling halve it once."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE ledger_pace SET gap = least(gap * %s, %s), last_cut = clock_timestamp() WHERE bucket_id = %s "
            "AND (last_cut IS NULL OR last_cut < clock_timestamp() - interval '1 s')",
            [CUT, SLOWEST, bucket_id],
        )


def speed_up(bucket: Bucket) -> None:
    """Raise the rate a little after a quiet time, up to the bucket's limit."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            UPDATE ledger_pace SET gap = greatest(gap * %(raise)s, %(floor)s), last_raise = clock_timestamp()
            WHERE bucket_id = %(bucket)s AND gap > %(floor)s
                AND greatest(last_cut, last_raise) < clock_timestamp() - %(quiet)s * interval '1 s'
            """,
            {"bucket": bucket.pk, "raise": RAISE, "floor": 1 / bucket.keys_per_second, "quiet": QUIET},
        )
