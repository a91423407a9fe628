-- Who used what: seconds of handlers, attempts and failures of the jobs that ended, by tenant, task and plan.
-- Seconds are what handlers took by their own clocks; of attempts of which nobody told that, how long they were held.
WITH ended AS (
  SELECT j.queue, coalesce(j.parent, '') AS tenant, coalesce(j.task, '') AS task, coalesce(j.plan, '') AS plan,
    coalesce(j.ran_s, j.held_s) AS seconds, j.attempts,
    greatest(j.attempts - j.uncounted - CASE WHEN j.outcome = 'acked' THEN 1 ELSE 0 END, 0) AS failed,
    CASE WHEN j.outcome IN ('rejected', 'dead') THEN 1 ELSE 0 END AS dead, j.wait_s - (j.blocked_pause_s + j.blocked_rate_s + j.blocked_cap_s) AS waited
  FROM jobs j CROSS JOIN asked a
  WHERE j.ended_at >= a.since AND j.ended_at < a.until
),
sides AS (
  SELECT 'tenant' AS kind, queue, tenant AS name, seconds, attempts, failed, dead, waited FROM ended
  UNION ALL SELECT 'task', queue, task, seconds, attempts, failed, dead, waited FROM ended
  UNION ALL SELECT 'plan', queue, plan, seconds, attempts, failed, dead, waited FROM ended
)
SELECT kind, queue, name, count(*) AS jobs, sum(seconds) AS seconds, sum(attempts) AS attempts, sum(failed) AS failed,
  sum(dead) AS dead, sum(waited) AS waited_s, max(waited) AS longest_wait_s
FROM sides GROUP BY kind, queue, name
ORDER BY kind DESC, seconds DESC, queue, name
