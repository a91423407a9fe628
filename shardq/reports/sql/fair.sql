-- Was it fair? Of each two tenants (parents) that both had unblocked work ready, how many seconds more of work one was
-- given, by weight, than the other while both had, beside what the engine promises: a few of their longest jobs.
-- Times within are seconds since `asked.since`. A job is given its seconds evenly from its delivery to its end. Where
-- there are more handlers than tenants, they are shared by messages in flight, so the time of handlers is equal, without
-- the 1 ms that each message costs beside (all that one costs in a queue that is fair in messages). So who is ahead is so
-- in what was charged and in the time of handlers (`net`).
WITH
works AS (
  SELECT j.queue_id, j.parent, j.shard_key, j.blocked_rate_s + j.blocked_cap_s AS limited_s, 1.0 * j.attempts AS attempts,
    j.ready_at - a.since AS ready, j.first_at - a.since AS first_given, j.ended_at - a.since AS ended,
    CASE WHEN j.attempts > 1 THEN j.first_at ELSE j.last_at END - a.since AS given,
    CASE WHEN NOT q.is_timed THEN 0.001 * j.attempts WHEN j.work_s > 0 THEN j.work_s ELSE coalesce(j.ran_s, 0.0) END AS seconds,
    CASE WHEN q.is_timed AND j.work_s > 0 THEN greatest(j.work_s - 0.001 * j.attempts, 0.0) ELSE coalesce(j.ran_s, 0.0) END AS net,
    q.is_timed, a.until - a.since AS over
  FROM jobs j CROSS JOIN asked a
  JOIN (
    SELECT queue_id, sum(work_s) > 0.002 * sum(CASE WHEN work_s > 0 THEN attempts ELSE 0 END) AS is_timed FROM jobs GROUP BY queue_id
  ) AS q ON q.queue_id = j.queue_id
  WHERE j.parent IS NOT NULL AND j.shard_key IS NOT NULL
),
rules AS ( -- what was set for a shard key, a parent, a plan or the queue, from when until when
  SELECT s.queue_id, s.scope, s.named, s.paused, s.weight, s.plan, s.set_at - a.since AS begins,
    coalesce(lead(s.set_at) OVER (PARTITION BY s.queue_id, s.scope, s.named ORDER BY s.set_at), a.until) - a.since AS ends,
    coalesce(s.paused_until, a.until) - a.since AS pause_ends,
    coalesce(s.weight_until, a.until) - a.since AS weight_ends,
    coalesce(s.limits_until, a.until) - a.since AS plan_ends
  FROM settings s CROSS JOIN asked a
),
-- 1. When did a tenant have something that could be delivered?
ready AS ( -- what a rate or cap blocked for a part of its wait counts as blocked for all of it
  SELECT queue_id, parent, shard_key, greatest(ready, 0.0) AS begins, least(coalesce(first_given, ended, over), over) AS ends
  FROM works WHERE ready IS NOT NULL AND limited_s = 0
),
tenant_keys AS (SELECT DISTINCT queue_id, parent, shard_key FROM ready),
pauses AS (
  SELECT k.queue_id, k.parent, k.shard_key, r.begins, least(r.ends, r.pause_ends) AS ends
  FROM tenant_keys k JOIN rules r ON r.queue_id = k.queue_id AND r.scope = 'queue' WHERE r.paused
  UNION ALL
  SELECT k.queue_id, k.parent, k.shard_key, r.begins, least(r.ends, r.pause_ends) AS ends
  FROM tenant_keys k JOIN rules r ON r.queue_id = k.queue_id AND r.scope = 'key' AND r.named = k.shard_key WHERE r.paused
  UNION ALL
  SELECT k.queue_id, k.parent, k.shard_key, r.begins, least(r.ends, r.pause_ends) AS ends
  FROM tenant_keys k JOIN rules r ON r.queue_id = k.queue_id AND r.scope = 'key' AND r.named = k.parent
  WHERE r.paused AND k.parent <> k.shard_key
),
key_marks AS (
  SELECT queue_id, parent, shard_key, t, sum(is_ready) AS is_ready, sum(is_paused) AS is_paused
  FROM (
    SELECT queue_id, parent, shard_key, begins AS t, 1 AS is_ready, 0 AS is_paused FROM ready WHERE ends > begins
    UNION ALL SELECT queue_id, parent, shard_key, ends, -1, 0 FROM ready WHERE ends > begins
    UNION ALL SELECT queue_id, parent, shard_key, begins, 0, 1 FROM pauses WHERE ends > begins
    UNION ALL SELECT queue_id, parent, shard_key, ends, 0, -1 FROM pauses WHERE ends > begins
  ) AS each_mark
  GROUP BY queue_id, parent, shard_key, t
),
key_steps AS (
  SELECT queue_id, parent, t AS begins, lead(t) OVER (PARTITION BY queue_id, parent, shard_key ORDER BY t) AS ends,
    sum(is_ready) OVER (PARTITION BY queue_id, parent, shard_key ORDER BY t) AS is_ready,
    sum(is_paused) OVER (PARTITION BY queue_id, parent, shard_key ORDER BY t) AS is_paused
  FROM key_marks
),
unblocked AS (SELECT queue_id, parent, begins, ends FROM key_steps WHERE is_ready > 0 AND is_paused = 0 AND ends > begins),
-- 2. What weight did it have?
weight_marks AS (
  SELECT queue_id, named AS parent, begins AS t FROM rules WHERE scope = 'key'
  UNION SELECT queue_id, named, weight_ends FROM rules WHERE scope = 'key' AND weight_ends < ends
  UNION SELECT queue_id, named, plan_ends FROM rules WHERE scope = 'key' AND plan_ends < ends
  UNION SELECT r.queue_id, r.named, p.begins
  FROM rules r JOIN rules p ON p.queue_id = r.queue_id AND p.scope = 'plan' AND p.named = r.plan
  WHERE r.scope = 'key' AND p.begins > r.begins AND p.begins < r.ends
),
weights AS (
  SELECT m.queue_id, m.parent, m.t,
    max(coalesce(CASE WHEN m.t < r.weight_ends THEN r.weight END, CASE WHEN m.t < r.plan_ends THEN p.weight END, 1.0)) AS weight
  FROM weight_marks m
  JOIN rules r ON r.queue_id = m.queue_id AND r.scope = 'key' AND r.named = m.parent AND r.begins <= m.t AND m.t < r.ends
  LEFT JOIN rules p ON p.queue_id = r.queue_id AND p.scope = 'plan' AND p.named = r.plan AND p.begins <= m.t AND m.t < p.ends
  GROUP BY m.queue_id, m.parent, m.t
),
-- 3. What was it given? Work that still runs counts as a second each second: who has it is not behind by it.
pieces AS (
  SELECT queue_id, parent, begins, ends, seconds / (full_ends - begins) AS rate, seconds / attempts AS longest, ended,
    net / (full_ends - begins) AS net, net / attempts AS longest_net
  FROM (
    SELECT queue_id, parent, greatest(given, 0.0) AS begins, least(greatest(coalesce(ended, over), given + 0.001), over) AS ends,
      greatest(coalesce(ended, over), given + 0.001) AS full_ends, attempts, ended,
      CASE WHEN ended IS NULL AND is_timed THEN over - given ELSE seconds END AS seconds,
      CASE WHEN ended IS NULL THEN over - given ELSE net END AS net
    FROM works WHERE given IS NOT NULL
  ) AS each_work
  WHERE ends > begins AND seconds > 0
),
-- 4. All of that in one sweep for each tenant: from each moment to the next, whether it had work ready, and what it got.
marks AS (
  SELECT queue_id, parent, t, sum(d_ready) AS d_ready, sum(d_rate) AS d_rate, sum(d_net) AS d_net, sum(d_owed) AS d_owed,
    sum(d_owed_net) AS d_owed_net, max(longest_net) AS longest_net,
    sum(d_weight) AS d_weight, max(longest) AS longest
  FROM (
    SELECT queue_id, parent, begins AS t, 1 AS d_ready, 0.0 AS d_rate, 0.0 AS d_net, 0.0 AS d_owed, 0.0 AS d_weight, 0.0 AS longest,
      0.0 AS d_owed_net, 0.0 AS longest_net FROM unblocked
    UNION ALL SELECT queue_id, parent, ends, -1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0 FROM unblocked
    UNION ALL SELECT queue_id, parent, begins, 0, rate, net, rate * ends, 0.0, longest,
      net * ends, longest_net FROM pieces
    UNION ALL SELECT queue_id, parent, ends, 0, -rate, -net, -rate * ends, 0.0, 0.0, -net * ends, 0.0 FROM pieces
    UNION ALL
    SELECT queue_id, parent, t, 0, 0.0, 0.0, 0.0, weight - lag(weight, 1, 1.0) OVER (PARTITION BY queue_id, parent ORDER BY t), 0.0, 0.0, 0.0
    FROM weights
  ) AS each_mark
  GROUP BY queue_id, parent, t
),
steps AS (
  SELECT queue_id, parent, t, lead(t) OVER tenant AS next_t,
    CASE WHEN sum(d_ready) OVER tenant > 0 THEN 1 ELSE 0 END AS is_ready,
    sum(d_rate) OVER tenant AS rate, sum(d_net) OVER tenant AS net, sum(d_owed) OVER tenant AS owed, 1.0 + sum(d_weight) OVER tenant AS weight, longest,
    sum(d_owed_net) OVER tenant AS owed_net, longest_net
  FROM marks WINDOW tenant AS (PARTITION BY queue_id, parent ORDER BY t)
),
changes AS (
  SELECT queue_id, parent, t, next_t, is_ready, weight, rate, longest, longest_net, rate / weight AS got, is_ready * rate AS given,
    is_ready - lag(is_ready, 1, 0) OVER tenant AS d_ready,
    rate / weight - lag(rate / weight, 1, 0.0) OVER tenant AS d_got,
    net / weight - lag(net / weight, 1, 0.0) OVER tenant AS d_net,
    owed / weight - lag(owed / weight, 1, 0.0) OVER tenant AS d_owed,
    owed_net / weight - lag(owed_net / weight, 1, 0.0) OVER tenant AS d_owed_net,
    is_ready * rate - lag(is_ready * rate, 1, 0.0) OVER tenant AS d_given,
    is_ready * weight - lag(is_ready * weight, 1, 0.0) OVER tenant AS d_weight,
    CASE WHEN weight = lag(weight, 1, 1.0) OVER tenant THEN 0 ELSE 1 END AS is_other_weight
  FROM steps WINDOW tenant AS (PARTITION BY queue_id, parent ORDER BY t)
),
-- 5. The fair share: what all that had work ready were given, by weight. It finds the tenants to compare in pairs.
moments AS (
  SELECT queue_id, t, lead(t) OVER queue_of AS next_t, sum(d_given) OVER queue_of AS given, sum(d_weight) OVER queue_of AS weight
  FROM (SELECT queue_id, t, sum(d_given) AS d_given, sum(d_weight) AS d_weight FROM changes GROUP BY queue_id, t) AS each_moment
  WINDOW queue_of AS (PARTITION BY queue_id ORDER BY t)
),
shares AS (
  SELECT queue_id, t, coalesce(sum(CASE WHEN weight > 0.5 THEN given / weight * (next_t - t) ELSE 0.0 END)
    OVER (PARTITION BY queue_id ORDER BY t ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0.0) AS share
  FROM moments
),
leads AS (
  SELECT queue_id, parent, t, weight, is_ready * (next_t - t) AS waited, given * (next_t - t) AS given,
    is_ready * weight * (next_share - share) AS fair, is_ready * (got * (next_t - t) - (next_share - share)) AS ahead,
    sum(CASE WHEN is_ready = 0 OR d_ready > 0 OR is_other_weight = 1 THEN 1 ELSE 0 END) OVER (PARTITION BY queue_id, parent ORDER BY t) AS stretch
  FROM (
    SELECT c.*, s.share, lead(s.share) OVER (PARTITION BY c.queue_id, c.parent ORDER BY c.t) AS next_share
    FROM changes c JOIN shares s ON s.queue_id = c.queue_id AND s.t = c.t
  ) AS each_step
  WHERE next_t IS NOT NULL
),
extremes AS (
  SELECT queue_id, parent, t, stretch, weight, waited, given, fair, so_far,
    least(0.0, min(so_far) OVER (PARTITION BY queue_id, parent, stretch ORDER BY t)) AS lowest,
    greatest(0.0, max(so_far) OVER (PARTITION BY queue_id, parent, stretch ORDER BY t)) AS highest
  FROM (SELECT *, sum(ahead) OVER (PARTITION BY queue_id, parent, stretch ORDER BY t) AS so_far FROM leads) AS each_lead
),
risen AS ( -- how far each was ahead of its fair share at a moment, as changes from one moment to the next
  SELECT queue_id, parent, t, rise - lag(rise, 1, 0.0) OVER (PARTITION BY queue_id, parent ORDER BY t) AS d_rise
  FROM (
    SELECT queue_id, parent, t, lag(so_far - lowest, 1, 0.0) OVER (PARTITION BY queue_id, parent, stretch ORDER BY t) AS rise
    FROM extremes
  ) AS each_moment
),
tenants AS (
  SELECT queue_id, parent, max(weight) AS weight, sum(waited) AS waited_s, sum(given) AS given_s, sum(fair) AS fair_s,
    max(so_far - lowest) AS rise, max(highest - so_far) AS fall
  FROM extremes GROUP BY queue_id, parent
),
ranked AS (
  SELECT *, row_number() OVER (PARTITION BY queue_id ORDER BY rise DESC, parent) AS by_rise,
    row_number() OVER (PARTITION BY queue_id ORDER BY fall DESC, parent) AS by_fall
  FROM tenants WHERE waited_s > 0
),
-- 6. Each of those that rose most beside each of those that fell most, in a sweep for each pair.
pairs AS (
  SELECT a.queue_id, a.parent AS ahead, b.parent AS behind
  FROM ranked a JOIN ranked b ON b.queue_id = a.queue_id AND b.parent <> a.parent
  WHERE a.by_rise <= 20 AND b.by_fall <= 20
),
pair_marks AS (
  SELECT queue_id, ahead, behind, t, sum(ready_ahead) AS ready_ahead, sum(ready_behind) AS ready_behind,
    sum(got_ahead) AS got_ahead, sum(more) AS more, sum(net_more) AS net_more, sum(owed) AS owed, sum(net_ahead) AS net_ahead,
    sum(owed_net) AS owed_net, max(longest) AS longest, max(longest_net) AS longest_net,
    max(before) AS before, sum(d_rise) AS d_rise, max(is_other_weight) AS is_other_weight
  FROM (
    SELECT p.queue_id, p.ahead, p.behind, c.t, c.d_ready AS ready_ahead, 0 AS ready_behind, c.d_got AS got_ahead,
      c.d_got AS more, c.d_net AS net_more, c.d_owed AS owed, c.d_net AS net_ahead,
      c.d_owed_net AS owed_net, c.longest / c.weight AS longest, c.longest_net / c.weight AS longest_net,
      0.0 AS before, 0.0 AS d_rise, c.is_other_weight
    FROM pairs p JOIN changes c ON c.queue_id = p.queue_id AND c.parent = p.ahead
    UNION ALL
    SELECT p.queue_id, p.ahead, p.behind, c.t, 0, c.d_ready, 0.0, -c.d_got, -c.d_net, 0.0, 0.0, 0.0, c.longest / c.weight, c.longest_net / c.weight,
      greatest(c.longest, c.longest_net) / c.weight, coalesce(r.d_rise, 0.0), c.is_other_weight
    FROM pairs p JOIN changes c ON c.queue_id = p.queue_id AND c.parent = p.behind
    LEFT JOIN risen r ON r.queue_id = c.queue_id AND r.parent = c.parent AND r.t = c.t
  ) AS each_change
  GROUP BY queue_id, ahead, behind, t
),
pair_steps AS (
  SELECT queue_id, ahead, behind, t, lead(t) OVER pair AS next_t, longest, longest_net, is_other_weight,
    CASE WHEN sum(ready_ahead) OVER pair > 0 AND sum(ready_behind) OVER pair > 0 THEN 1 ELSE 0 END AS both_ready,
    sum(more) OVER pair AS more, sum(net_more) OVER pair AS net_more,
    greatest(max(before) OVER pair, sum(d_rise) OVER pair) AS before,
    -owed + sum(owed) OVER pair AS owed_before, -got_ahead + sum(got_ahead) OVER pair AS got_before,
    -owed_net + sum(owed_net) OVER pair AS owed_net_before, -net_ahead + sum(net_ahead) OVER pair AS net_before
  FROM pair_marks WINDOW pair AS (PARTITION BY queue_id, ahead, behind ORDER BY t)
),
stretches AS ( -- times in which both had work ready
  SELECT *, sum(is_first) OVER (PARTITION BY queue_id, ahead, behind ORDER BY t) AS stretch,
    CASE WHEN is_first = 1 THEN before + greatest(owed_before - t * got_before, 0.0) ELSE 0.0 END AS carried,
    CASE WHEN is_first = 1 THEN before + greatest(owed_net_before - t * net_before, 0.0) ELSE 0.0 END AS carried_net
  FROM (
    SELECT *, CASE WHEN both_ready = 1 AND (is_other_weight = 1
      OR lag(both_ready, 1, 0) OVER (PARTITION BY queue_id, ahead, behind ORDER BY t) = 0) THEN 1 ELSE 0 END AS is_first
    FROM pair_steps
  ) AS each_step
),
compared AS ( -- What ran already when the stretch began nobody could take away: it is not held against who has it. And
  -- who is behind may have been ahead before, by its longest job or more: that is taken from it now.
  SELECT queue_id, ahead, behind, stretch, next_t,
    min(t) OVER (PARTITION BY queue_id, ahead, behind, stretch) AS begins,
    sum(more * (next_t - t)) OVER so_far AS full_s, sum(net_more * (next_t - t)) OVER so_far AS net_s,
    6 * max(longest) OVER so_far + sum(carried) OVER so_far + 0.1 AS full_bound,
    6 * max(longest_net) OVER so_far + sum(carried_net) OVER so_far + 0.1 AS net_bound
  FROM stretches WHERE both_ready = 1 AND next_t IS NOT NULL
  WINDOW so_far AS (PARTITION BY queue_id, ahead, behind, stretch ORDER BY t)
),
worst AS (
  SELECT *, row_number() OVER ( -- to the µs: equal ones differ by how they were added up
    PARTITION BY queue_id, ahead, behind ORDER BY round(greatest(ahead_s - bound_s, 0.0), 6) DESC, round(ahead_s, 6) DESC, next_t
  ) AS place
  FROM (
    SELECT *, CASE WHEN full_s - full_bound < net_s - net_bound THEN full_s ELSE net_s END AS ahead_s,
      CASE WHEN full_s - full_bound < net_s - net_bound THEN full_bound ELSE net_bound END AS bound_s
    FROM compared
  ) AS each_moment
)
SELECT 'pair' AS kind, n.queue, w.ahead AS tenant, w.behind AS other, a.since + w.begins AS since, a.since + w.next_t AS until,
  w.ahead_s, w.bound_s, w.next_t - w.begins AS waited_s, NULL AS given_s, NULL AS fair_s, NULL AS weight
FROM worst w CROSS JOIN asked a JOIN names n ON n.queue_id = w.queue_id
WHERE w.place = 1 AND w.ahead_s > 0
UNION ALL
SELECT 'tenant', n.queue, t.parent, NULL, NULL, NULL, t.rise, t.fall, t.waited_s, t.given_s, t.fair_s, t.weight
FROM ranked t JOIN names n ON n.queue_id = t.queue_id
