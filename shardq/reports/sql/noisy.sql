-- Who is noisier than usual: each tenant's last day beside its own days before, by the median and the median deviation
-- (MAD) of the logarithm, so that one odd day does not count. What all tenants do more of together is taken off, and load
-- is what they write and what it takes, never how long it waits: so an overload makes nobody noisy.
-- A day ends when the report ends: 24 h before, and so on, for `asked.weeks` weeks.
WITH written AS (
  SELECT j.queue, j.parent AS tenant, floor((a.until - coalesce(j.written_at, j.first_at)) / 86400) AS ago,
    coalesce(j.ran_s, j.held_s) AS seconds, a.weeks
  FROM jobs j CROSS JOIN asked a
  WHERE j.parent IS NOT NULL AND coalesce(j.written_at, j.first_at) < a.until
    AND coalesce(j.written_at, j.first_at) >= a.until - 86400.0 * (7 * a.weeks + 1)
),
means AS (SELECT queue, avg(seconds) AS mean_s FROM written WHERE seconds > 0 GROUP BY queue),
days AS ( -- a job that was not done takes as long as the others of its day, tenant or queue
  SELECT w.queue, w.tenant, w.ago, count(*) AS jobs,
    count(*) * coalesce(avg(CASE WHEN w.seconds > 0 THEN w.seconds END), max(t.mean_s), max(m.mean_s), 0.0) AS seconds
  FROM written w
  LEFT JOIN (SELECT queue, tenant, avg(seconds) AS mean_s FROM written WHERE seconds > 0 GROUP BY queue, tenant) AS t
    ON t.queue = w.queue AND t.tenant = w.tenant
  LEFT JOIN means m ON m.queue = w.queue
  GROUP BY w.queue, w.tenant, w.ago
),
firsts AS (SELECT queue, tenant, max(ago) AS first_ago FROM days GROUP BY queue, tenant),
numbers AS (SELECT 0 AS n UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5
  UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9),
calendar AS (SELECT 1.0 * (x.n + 10 * y.n + 100 * z.n) AS ago FROM numbers x CROSS JOIN numbers y CROSS JOIN numbers z),
levels AS ( -- days on which it wrote nothing count, too, from its first one on
  SELECT f.queue, f.tenant, c.ago, coalesce(d.jobs, 0) AS jobs, coalesce(d.seconds, 0.0) AS seconds,
    ln(1 + coalesce(d.seconds, 0.0)) AS level
  FROM firsts f JOIN calendar c ON c.ago <= f.first_ago
  LEFT JOIN days d ON d.queue = f.queue AND d.tenant = f.tenant AND d.ago = c.ago
),
usual AS (
  SELECT queue, tenant, median(level) AS level, count(*) AS days, median(seconds) AS seconds, median(jobs) AS jobs, max(seconds) AS peak_s
  FROM levels WHERE ago > 0 GROUP BY queue, tenant
),
spread AS (
  SELECT l.queue, l.tenant, median(abs(l.level - u.level)) AS mad
  FROM levels l JOIN usual u ON u.queue = l.queue AND u.tenant = l.tenant WHERE l.ago > 0 GROUP BY l.queue, l.tenant
),
growth AS (
  SELECT l.queue, l.tenant, l.jobs, l.seconds, u.days, u.seconds AS usual_s, u.jobs AS usual_jobs, u.peak_s, l.level - u.level AS grown, s.mad
  FROM levels l JOIN usual u ON u.queue = l.queue AND u.tenant = l.tenant
  JOIN spread s ON s.queue = l.queue AND s.tenant = l.tenant WHERE l.ago = 0
),
common AS (SELECT queue, median(grown) AS grown, count(*) AS tenants FROM growth WHERE days >= 7 GROUP BY queue)
SELECT g.queue, g.tenant, g.jobs, g.usual_jobs, g.seconds, g.usual_s, g.peak_s, g.days, exp(g.grown) AS times, exp(greatest(coalesce(c.grown, 0.0), 0.0)) AS all_times,
  (g.grown - CASE WHEN c.tenants >= 3 THEN greatest(c.grown, 0.0) ELSE 0.0 END) / greatest(1.4826 * g.mad, 0.2) AS score,
  g.seconds / nullif(sum(g.seconds) OVER (PARTITION BY g.queue), 0.0) AS share
FROM growth g LEFT JOIN common c ON c.queue = g.queue
ORDER BY score DESC, g.seconds DESC, g.queue, g.tenant
