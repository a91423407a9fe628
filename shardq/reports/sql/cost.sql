-- What it cost: the price of a slot-second times the seconds of handlers, a row for each day, queue, tenant and task,
-- under the names of columns of FOCUS (FinOps' open standard, 1.2); and of what workers offered and nobody used, apart.
-- A job costs on the day of its end. Columns that begin with x_ are our own, as FOCUS says.
WITH days AS (
  SELECT j.queue, coalesce(j.parent, '') AS tenant, coalesce(j.task, '') AS task, floor(j.ended_at / 86400) * 86400 AS day,
    sum(coalesce(j.ran_s, j.held_s)) AS seconds, count(*) AS jobs, sum(j.attempts) AS attempts
  FROM jobs j CROSS JOIN asked a
  WHERE j.ended_at >= a.since AND j.ended_at < a.until
  GROUP BY j.queue, coalesce(j.parent, ''), coalesce(j.task, ''), floor(j.ended_at / 86400) * 86400
),
numbers AS (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5
  UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9),
calendar AS ( -- the days of the report, 10,000 at most
  SELECT day FROM (
    SELECT floor(a.since / 86400) * 86400 + 86400.0 * (x.n + 10 * y.n + 100 * z.n + 1000 * w.n) AS day, a.until
    FROM asked a CROSS JOIN numbers x CROSS JOIN numbers y CROSS JOIN numbers z CROSS JOIN numbers w
  ) AS each_day WHERE day < until
),
stays AS ( -- the slots of a worker are of all of its queues together: each stay counts once, and without a silence at its end
  SELECT greatest(coalesce(c.from_at, a.since), a.since) AS begins,
    least(coalesce(c.to_at - coalesce(c.silent_s, 0.0), a.until), a.until) AS ends, c.slots
  FROM capacity c JOIN (SELECT worker, min(queue_id) AS queue_id FROM capacity GROUP BY worker) AS f
    ON f.worker = c.worker AND f.queue_id = c.queue_id
  CROSS JOIN asked a
),
offered AS (
  SELECT c.day, sum(s.slots * greatest(least(s.ends, c.day + 86400.0) - greatest(s.begins, c.day), 0.0)) AS seconds
  FROM calendar c CROSS JOIN stays s GROUP BY c.day
),
charges AS (
  SELECT day, queue, tenant, task, seconds, jobs, attempts, 'Work of handlers' AS told FROM days
  UNION ALL
  SELECT o.day, '', '', '', greatest(o.seconds - coalesce(u.seconds, 0.0), 0.0), 0, 0, 'Idle slots of workers'
  FROM offered o LEFT JOIN (SELECT day, sum(seconds) AS seconds FROM days GROUP BY day) AS u ON u.day = o.day
  WHERE o.seconds > 0
)
SELECT c.seconds * a.price AS BilledCost, a.currency AS BillingCurrency, 'Usage' AS ChargeCategory, c.told AS ChargeDescription,
  'Usage-Based' AS ChargeFrequency, c.day AS ChargePeriodStart, c.day + 86400.0 AS ChargePeriodEnd, c.seconds AS ConsumedQuantity,
  'Seconds' AS ConsumedUnit, c.seconds * a.price AS EffectiveCost, c.seconds * a.price AS ListCost, a.price AS ListUnitPrice,
  c.seconds AS PricingQuantity, 'Seconds' AS PricingUnit, c.queue AS ResourceName, 'Queue' AS ResourceType,
  'Integration' AS ServiceCategory, 'shardq' AS ServiceName, c.tenant AS SubAccountId, c.task AS x_Task, c.jobs AS x_Jobs,
  c.attempts AS x_Attempts
FROM charges c CROSS JOIN asked a
ORDER BY ChargePeriodStart, BilledCost DESC, ResourceName, SubAccountId, x_Task
