-- Take the alarms that an e-mail is owed about, so that nobody else tells of them at the same time: what is open and was not told
-- of, or so long ago that it is told again; and what is over, if that was not told. What failed is tried again after 2, 4, 8 minutes
-- and so on, at most an hour. Parameters: repeat, kept (seconds: what ended longer ago is left), most int. Returns the numbers.
WITH owed AS (
    SELECT id FROM base_alarm
    WHERE (tried_at IS NULL OR tried_at <= now() - least(power(2, least(tries, 6)), 60) * interval '1 min')
        AND (
            cleared_at IS NULL AND (told_at IS NULL OR told_at <= now() - %(repeat)s * interval '1 s')
            OR cleared_at > now() - %(kept)s * interval '1 s' AND end_told_at IS NULL
        )
    ORDER BY id LIMIT %(most)s
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE base_alarm a SET tried_at = now(), tries = a.tries + 1 FROM owed WHERE a.id = owed.id RETURNING a.id
