"""The columns of the tables of jobs, and the folder in which they lie. docs/jobs.md says the same to users.

Columns whose names end with `_at` are times of the server's clock, those that end with `_s` are seconds. A time is null
where it has not come, and a number of seconds is 0 where none passed, unless its line below says otherwise.

A folder of these tables:

    jobs/day=2026-11-30/run=000000000007/*.parquet   jobs that ended on that day (UTC), sorted by queue and shard key
    open/run=000000000007/*.parquet                  jobs that had not ended when run 7 was done: the newest run counts
    settings/run=000000000007/*.parquet              what people set
    capacity/run=000000000007/*.parquet              workers that have left
    present/run=000000000007/*.parquet               workers that were there when run 7 was done: the newest run counts
    lost/run=000000000007/*.parquet                  where events of the journal are missing
    state/run=000000000007/*.parquet                 what else the next run continues from: dead letters, and so on
    runs/000000000007.json                           run 7 is done; written last, so a run without it is made once more

Where many runs added to a day before the newest, or to another table, `run=000000000003-000000000009` has the rows of
all of these (`compacting`): folders that it covers count no more.

A run that is made once more writes over what it left. The columns `day` and `run` are in the names of folders only.
"""

from __future__ import annotations

from typing import Final

from shardq.extras import extra

with extra("jobs", "the table of jobs"):
    import pyarrow as pa

TIME: Final = pa.timestamp("us", tz="UTC")
"""The type of times. They are whole milliseconds, as the journal's are."""

JOBS: Final = pa.schema([
    ("queue", pa.string()),
    ("queue_id", pa.string()),
    ("message_id", pa.string()),
    ("redriven", pa.int32()),
    ("shard_key", pa.string()),
    ("parent", pa.string()),
    ("task", pa.string()),
    ("plan", pa.string()),
    ("written_at", TIME),
    ("ready_at", TIME),
    ("first_at", TIME),
    ("last_at", TIME),
    ("ended_at", TIME),
    ("outcome", pa.string()),
    ("attempts", pa.int32()),
    ("uncounted", pa.int32()),
    ("replaced", pa.int32()),
    ("client", pa.string()),
    ("wait_s", pa.float64()),
    ("held_s", pa.float64()),
    ("work_s", pa.float64()),
    ("ran_s", pa.float64()),
    ("blocked_pause_s", pa.float64()),
    ("blocked_rate_s", pa.float64()),
    ("blocked_cap_s", pa.float64()),
    ("whole", pa.bool_()),
])  # fmt: skip
"""A job: a message from its write to its end. The key is (queue_id, message_id, redriven).

- `queue`, `queue_id`: the queue's name; its id, as `stats().id`: a queue that is created again has another.
- `redriven`: how often it had been taken back out of the dead letters. A message that became a dead letter has ended;
  its redrive begins a row of its own. So rows where this is 0 are one for each message that was written.
- `shard_key`: the last one that the journal told; null if none was. Bytes that are no UTF-8 are escaped.
- `parent`: under whom it counts in a queue with `parents`: what stands before the first "/"; else the shard key.
- `task`: the name of the task that the payload calls; null if none.
- `plan`: the plan that its shard key (or parent) was on when it ended; null if none, or if that is not known.
- `written_at`: when it was written (`redriven` above 0: as in the first row). Null if that event is lost.
- `ready_at`: when it first could be delivered: when it was written, or due, last replaced, hastened or redriven. Null
  if it ended before.
- `first_at`, `last_at`: its first and last delivery. The pick-up delay is first_at - ready_at.
- `ended_at`, `outcome`: its end: acked, rejected, dead, expired, cancelled, purged, vanished. Null in open jobs.
- `attempts`: deliveries. `uncounted`: those that do not count against `max_deliveries`. Failed are attempts -
  uncounted, less 1 if it was acked.
- `replaced`: how often a write with its unique key replaced it.
- `client`: to whom it was delivered last; null if to nobody.
- `wait_s`: how long it was ready, and not in flight, over all attempts. A delay, such as a backoff, is not in it.
- `held_s`: how long it was in flight, from each delivery until it was settled or its lease ended.
- `work_s`: what its shard key was charged, which is what fairness goes by. It is 0 where nobody else waited, so it is
  none of a bill.
- `ran_s`: how long its handlers ran, by their own clocks. **Bills are made of this.** Null where nobody told it, as of
  a lease that ended: then `held_s` is the most that it can be.
- `blocked_pause_s`, `blocked_rate_s`, `blocked_cap_s`: the part of `wait_s` in which it could not be delivered since
  its shard key (or parent) or the whole queue was paused, else had no token of its rate, else was at its cap in flight.
  They do not overlap, so their sum is how long it was blocked.
- `whole`: false if events of the queue are lost between its first event and its end, or its first event is none that
  begins a row. Then it may have had more attempts than these.
"""

SETTINGS: Final = pa.schema([
    ("queue", pa.string()),
    ("queue_id", pa.string()),
    ("at", TIME),
    ("kind", pa.string()),
    ("scope", pa.string()),
    ("key", pa.string()),
    ("weight", pa.float64()),
    ("weight_until", TIME),
    ("cap", pa.int64()),
    ("rate", pa.float64()),
    ("burst", pa.float64()),
    ("plan", pa.string()),
    ("limits_until", TIME),
    ("paused", pa.bool_()),
    ("paused_until", TIME),
    ("values", pa.map_(pa.string(), pa.string())),
    ("by", pa.string()),
    ("note", pa.string()),
])  # fmt: skip
"""A setting by somebody. A row is all that is known of its (queue_id, scope, key) from `at` on, until its next row.

- `kind`: the event: configured, weighted, limited, paused, resumed, plan_set, plan_deleted; or `seen`: so it stood in
  the queue when the table was begun.
- `scope`: "queue", "key" (a shard key or parent) or "plan". `key`: its name; null for the queue.
- `weight`: null: of the plan, or 1. Null again from `weight_until` on.
- `cap` (max_in_flight), `rate` (per second), `burst`, `plan`: null: of the plan, or as the queue's settings say; 0: no
  limit. Null again from `limits_until` on. Of the queue: what it gives *each* shard key.
- `paused`, `paused_until`: whether it is paused, and until when; null: without an end.
- `values`: of the queue: its settings by name, as text, as far as they were reported; of others: what the event has.
- `by`, `note`: who asked for it, and why.
"""

CAPACITY: Final = pa.schema([
    ("queue", pa.string()),
    ("queue_id", pa.string()),
    ("worker", pa.string()),
    ("from_at", TIME),
    ("to_at", TIME),
    ("slots", pa.int32()),
    ("silent_s", pa.float64()),
])  # fmt: skip
"""A stay of a worker: from when it was heard until it left.

- `worker`: its id, as in `workers()`, which begins with the name of its client.
- `from_at`: null if that event is lost. `to_at`: null while it is there. One that was given up had been silent for the
  last `silent_s` seconds before; null: it said that it ends.
- `slots`: how many jobs it runs at once, for all of its queues together.
"""

LOST: Final = pa.schema([
    ("queue", pa.string()),
    ("queue_id", pa.string()),
    ("partition", pa.int32()),
    ("after_at", TIME),
    ("before_at", TIME),
    ("events", pa.int64()),
])  # fmt: skip
"""Events that are missing: how many `events`, between the one at `after_at` and the one at `before_at`.

`after_at` is null if nothing before is known. A day is not whole if such a range touches it.
"""

EVENTS: Final = pa.schema([
    ("queue", pa.string()),
    ("queue_id", pa.string()),
    ("partition", pa.int32()),
    ("number", pa.int64()),
    ("time", TIME),
    ("kind", pa.string()),
    ("message_id", pa.string()),
    ("shard_key", pa.string()),
    ("count", pa.int64()),
    ("due", TIME),
    ("client", pa.string()),
    ("by", pa.string()),
    ("note", pa.string()),
    ("task", pa.string()),
    ("charged_ms", pa.float64()),
    ("ran_ms", pa.float64()),
    ("values", pa.map_(pa.string(), pa.string())),
])  # fmt: skip
"""Events of journals, from which jobs are made: docs/journal.md. If no message is concerned, `message_id` is null.

An event of the kind `lost` stands where events are missing: it has the number of the last of them, the time of the next
event, as `due` the time of the event before if that is known, and in `count` how many are missing.
"""

OPEN: Final = pa.schema([
    *JOBS,
    ("state", pa.string()),
    ("number", pa.int64()),
    ("since", TIME),
    ("count", pa.int32()),
])  # fmt: skip
"""A job that has not ended, with all that the next run must know to continue it.

- `state`: "waiting" (or delayed), "in flight" or "no room" (it is to become a dead letter, and there is no room).
  In `state/` also "dead": a dead letter, which a redrive would take back.
- `number`: of its last event, in its partition. `count`: deliveries when it was last delivered, as the journal counts.
- `since`: from when on it waits, which may be to come; or when it was delivered. Null if that event is lost.
"""
