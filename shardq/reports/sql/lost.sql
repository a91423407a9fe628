-- How many events of this time are missing in the journal. No report of its own: each report says it.
SELECT coalesce(sum(l.events), 0) AS events
FROM lost l CROSS JOIN asked a
WHERE l.before_at >= a.since AND coalesce(l.after_at, 0.0) < a.until
