-- Which share of jobs began within `asked.within` seconds, beside an objective of `asked.objective`: for each queue, each
-- tenant and each hour, and for the last 1 h, 6 h and day. Time under a tenant's own pause, rate or cap is not counted.
-- A job is late as soon as it has waited too long, also if it has not begun, or ended without a delivery.
WITH begun AS (
  SELECT j.queue, coalesce(j.parent, '') AS tenant, a.since, a.until, a.objective, j.ready_at,
    coalesce(j.first_at, j.ended_at, a.until) - j.ready_at - (j.blocked_pause_s + j.blocked_rate_s + j.blocked_cap_s) AS delay,
    j.first_at IS NOT NULL AS has_begun, a.within AS allowed
  FROM jobs j CROSS JOIN asked a
  WHERE j.ready_at IS NOT NULL AND j.ready_at >= a.since AND j.ready_at < a.until
),
judged AS ( -- what has not begun, and is not late yet, is not judged
  SELECT *, CASE WHEN delay > allowed THEN 1 ELSE 0 END AS late FROM begun WHERE has_begun OR delay > allowed
),
sides AS (
  SELECT 'queue' AS kind, queue, '' AS name, until - since AS span_s, late, objective, since AS begins FROM judged
  UNION ALL SELECT 'tenant', queue, tenant, until - since, late, objective, since FROM judged
  UNION ALL SELECT 'hour', queue, '', 3600.0, late, objective, floor(ready_at / 3600) * 3600 FROM judged
  UNION ALL SELECT 'last', queue, '1 h', 3600.0, late, objective, until - 3600 FROM judged WHERE ready_at >= until - 3600
  UNION ALL SELECT 'last', queue, '6 h', 21600.0, late, objective, until - 21600 FROM judged WHERE ready_at >= until - 21600
  UNION ALL SELECT 'last', queue, '1 day', 86400.0, late, objective, until - 86400 FROM judged WHERE ready_at >= until - 86400
)
SELECT kind, queue, name, begins, span_s, count(*) AS jobs, sum(late) AS late, 1 - 1.0 * sum(late) / count(*) AS met,
  (1.0 * sum(late) / count(*)) / (1 - max(objective)) AS burn_rate,
  1 - (1.0 * sum(late) / count(*)) / (1 - max(objective)) AS budget_left
FROM sides GROUP BY kind, queue, name, begins, span_s
ORDER BY kind, queue, begins, late DESC, span_s, name
