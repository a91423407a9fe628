"""The texts of workers in Redis: the row of a worker, its work for each task, and the numbers of a minute.

A row is text, whose parts stand between '|', ';', ',' and '='. Names of any bytes are quoted as in addresses ("%7C" for
'|'), so none of them ends a part. Rows are bounded when they are written, and again when they are read: another program
may have written any. Unreadable texts are left out.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from shardq.model.minute import Minute, TaskMinute
from shardq.model.stats import QueueStats
from shardq.model.worker_status import PICKUP_BOUNDS, TaskWork, TenantWork, WorkerState, WorkerStatus
from shardq.protocol.bodies import text_or_bytes

MAX_ROW: Final = 1000
"""Bytes of a worker's row, without the time that Redis puts before it."""
MAX_TASKS_TEXT: Final = 560
"""Bytes of its tasks."""
MAX_NAME: Final = 96
"""Bytes of a quoted name."""
MAX_RANK: Final = 20
"""Tasks and tenants that a row has."""
MAX_MINUTE_TASKS: Final = 24
"""Tasks that a minute has apart."""
MAX_SUM: Final = 99_999_999_999_999
"""The largest number that a minute's tasks may have."""
GONE_AFTER: Final = 30.0
"""Seconds of silence after which a worker is gone."""
OTHER: Final = "other"
MINUTE: Final = 60
BUCKETS: Final = len(PICKUP_BOUNDS)

_LETTERS: Final = "abcdefghijklmnop"
_FINITE: Final = PICKUP_BOUNDS[:-1]
_BUCKET: Final = re.compile(r"([a-p])(\d{1,16})", re.ASCII)
_TASK: Final = re.compile(r"([\w%.~-]{0,96})=(\d{1,16}),(\d{1,16}),(\d{1,16});", re.ASCII)
_WORK: Final = re.compile(r"([^=]*)=(\d{1,400}),(\d{1,400}),(\d{1,400}),([a-p\d]*)", re.ASCII)
_NAME: Final = re.compile(r"[\w%.~-]{0,96}", re.ASCII)
_TENANT: Final = re.compile(r"([\w%.~-]{1,96})=(\d{1,16}),(\d{1,16}),(\d{0,16});", re.ASCII)


class TaskCount(NamedTuple):
    """The work for one task: jobs *done* and *failed*, their sum in *seconds*, and how many took how long."""

    done: int
    failed: int
    seconds: float
    buckets: Sequence[int]


class TenantCount(NamedTuple):
    """The work for one tenant: jobs, their sum in *seconds*, and how many waited how long."""

    done: int
    seconds: float
    buckets: Sequence[int]


class Beat(NamedTuple):
    """A worker's report in a beat. Times are seconds of the server's clock, as in `WorkerStatus`."""

    is_end: bool
    slots: int
    busy: float
    started: float
    pid: int
    memory: int
    memory_limit: int | None
    version: str
    host: str
    longest_since: float | None
    longest_message: str
    longest_task: str
    tasks: Mapping[str, TaskCount]
    tenants: Mapping[str | bytes, TenantCount]
    others: Sequence[int]
    """The pick-ups of all other tenants."""


def bucket_of(seconds: float) -> int:
    """Return the place of the bucket in which this many seconds are counted.

    >>> bucket_of(0), bucket_of(0.002), bucket_of(1e9)
    (0, 1, 15)
    """
    return bisect_left(_FINITE, seconds)


def quoted(name: str | bytes, most: int = MAX_NAME) -> str:
    """Return a name in letters that end no part of a row, cut to *most* of them.

    >>> quoted("a|b"), quoted("é" * 40, 7)
    ('a%7Cb', '%C3%A9')
    """
    left, widest = name[:most], 3 if isinstance(name, bytes) else 12  # what a byte, or a letter, takes at most
    while len(found := _percented(left)) > most:
        left = left[: -max(1, (len(found) - most) // widest)]
    return found


def _percented(name: str | bytes) -> str:
    return quote(name if isinstance(name, bytes) else name.encode(errors="replace"), safe="")


def _unquoted(name: str) -> str:
    return unquote_to_bytes(name).decode(errors="replace")


def spell_buckets(counts: Sequence[int]) -> str:
    """Return the buckets that have any, each with its letter.

    >>> spell_buckets([0, 3, 0, 1])
    'b3d1'
    """
    return "".join([f"{_LETTERS[at]}{count}" for at, count in enumerate(counts) if count])


def _buckets(text: str) -> tuple[int, ...]:
    counts = [0] * BUCKETS
    for letter, number in _BUCKET.findall(text[:400]):
        counts[_LETTERS.index(letter)] = int(number)
    return tuple(counts)


def percentile(counts: Sequence[int], part: float) -> float | None:
    """Return the seconds within which that *part* of what was counted lies; None of nothing.

    Within a bucket the counted are taken to lie evenly; those beyond the last bound are reported as that.

    >>> percentile([0, 0, 100], 0.5)
    0.0065
    """
    total = sum(counts)
    if not total:
        return None
    left = part * total
    for at, count in enumerate(counts):
        if count and count >= left:
            lower, upper = PICKUP_BOUNDS[at - 1] if at else 0.0, PICKUP_BOUNDS[at]
            return lower if math.isinf(upper) else min(upper, lower + (upper - lower) * left / count)  # 0.1 + 0.2 > 0.3
        left -= count
    return PICKUP_BOUNDS[-2]


def spell_row(beat: Beat) -> str:
    """Return the row of a worker: at most `MAX_ROW` bytes. Tenants without room count as other ones."""
    done, failed = sum(each.done for each in beat.tasks.values()), sum(each.failed for each in beat.tasks.values())
    since = "" if beat.longest_since is None else str(round(beat.longest_since * 1000))
    head = "|".join([
        f"{beat.is_end:d}", str(beat.slots), f"{beat.busy:.2f}", str(round(beat.started * 1000)), str(beat.pid),
        str(beat.memory), str(beat.memory_limit or ""), quoted(beat.version, 32), quoted(beat.host, 64), since,
        quoted(beat.longest_message, 64), quoted(beat.longest_task), str(done), str(failed),
    ])  # fmt: skip
    tasks = _spell_tasks(beat.tasks)
    others = [*beat.others]
    parts: list[str] = []
    room = MAX_ROW - len(head) - len(tasks) - 3 - 16 * 8
    for key, each in sorted(beat.tenants.items(), key=lambda item: -item[1].done):
        name = quoted(key, 3 * MAX_NAME)
        p99 = percentile(each.buckets, 0.99)
        part = f"{name}={each.done},{_mean_ms(each.seconds, each.done)},{'' if p99 is None else round(p99 * 1000)};"
        if len(parts) < MAX_RANK and 0 < len(name) <= MAX_NAME and len(part) <= room:
            parts.append(part)
            room -= len(part)
        else:
            others = [one + other for one, other in zip(others, each.buckets, strict=True)]
    row = f"{head}|{tasks}|{''.join(parts)}|{spell_buckets(others)}"
    return row if len(row) <= MAX_ROW else f"{head}|||"


def _mean_ms(seconds: float, count: int) -> int:
    return round(1000 * seconds / count) if count else 0


def _spell_tasks(tasks: Mapping[str, TaskCount]) -> str:
    parts: list[str] = []
    room = MAX_TASKS_TEXT
    for name, each in sorted(tasks.items(), key=lambda item: -item[1].done - item[1].failed):
        ran = each.done + each.failed
        part = f"{quoted(name)}={each.done},{each.failed},{_mean_ms(each.seconds, ran)};"
        if len(parts) == MAX_RANK or len(part) > room:
            break
        parts.append(part)
        room -= len(part)
    return "".join(parts)


def spell_work(minute: int, tasks: Mapping[str, TaskCount]) -> str:
    """Return what was done of *tasks* in a minute, as the verb `beat` takes it; '' for nothing."""
    parts = [
        f"{quoted(name)}={each.done},{each.failed},{round(1000 * each.seconds)},{spell_buckets(each.buckets)};"
        for name, each in tasks.items()
        if each.done or each.failed
    ]
    return f"{minute}|{''.join(parts)}" if parts else ""


def spell_numbers(found: QueueStats) -> str:
    """Return the numbers of a minute, as the verb `beat` takes them. The counters are those since the queue's begin."""
    failed = getattr(found, "failed", None)
    oldest = "" if found.oldest_age is None else str(round(found.oldest_age * 1000))
    return "|".join([
        str(int(found.time // MINUTE)), str(found.written), str(found.acked), "" if failed is None else str(failed),
        str(found.dead_lettered), str(found.backlog), str(found.runnable), str(found.in_flight), oldest,
    ])  # fmt: skip


def workers_of(queue: str, now: float, flat: Sequence[bytes]) -> list[WorkerStatus]:
    """Return the workers in a page of rows, without those that cannot be read."""
    found = (_worker_of(queue, now, flat[at], flat[at + 1]) for at in range(0, len(flat) - 1, 2))
    return [each for each in found if each is not None]


def _worker_of(queue: str, now: float, name: bytes, raw: bytes) -> WorkerStatus | None:
    fields = raw[: MAX_ROW + 32].decode("ascii", "replace").split("|")
    if len(fields) < 18:  # a worker of a later version may say more behind that
        return None
    try:
        heard, is_end, slots, busy, started, pid, memory, limit, version, host = fields[:10]
        since, message, task, done, failed = fields[10:15]
        at = int(heard) / 1000
        state: WorkerState = "ended" if is_end == "1" else "gone" if abs(now - at) > GONE_AFTER else "working"
        return WorkerStatus(
            id=_unquoted(name[:MAX_ROW].decode("ascii", "replace")), queue=queue, state=state, heard=at,
            started=int(started) / 1000, version=_unquoted(version), host=_unquoted(host), pid=int(pid),
            slots=int(slots), busy=_finite(busy), longest_since=int(since) / 1000 if since else None,
            longest_message=_unquoted(message), longest_task=_unquoted(task), memory=int(memory),
            memory_limit=int(limit) if limit else None, done=int(done), failed=int(failed),
            tasks=tuple(_task_work(*each) for each in _TASK.findall(fields[15])[:MAX_RANK]),
            tenants=tuple(_tenant_work(*each) for each in _TENANT.findall(fields[16])[:MAX_RANK]),
            other_tenants=_buckets(fields[17]),
        )  # fmt: skip
    except (ValueError, OverflowError):  # another program wrote it
        return None


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(text)
    return found


def _task_work(name: str, done: str, failed: str, ms: str) -> TaskWork:
    return TaskWork(_unquoted(name), int(done), int(failed), int(ms) / 1000)


def _tenant_work(name: str, done: str, ms: str, p99: str) -> TenantWork:
    key = text_or_bytes(unquote_to_bytes(name))
    return TenantWork(key, int(done), int(ms) / 1000, int(p99) / 1000 if p99 else None)


class MinuteRow(NamedTuple):
    """The numbers of a minute as they are stored; the counters are those since the queue's begin."""

    minute: int
    workers: int
    slots: int
    busy: float
    written: int
    done: int
    failed: int | None
    dead: int
    backlog: int
    runnable: int
    in_flight: int
    oldest_age: float | None


def minute_row(raw: bytes) -> MinuteRow | None:
    """Return the numbers of a stored minute; None if there are none that can be read."""
    fields = raw[:400].decode("ascii", "replace").split("|")
    if len(fields) != 12:
        return None
    try:
        minute, workers, slots, busy, written, done, failed, dead, backlog, runnable, in_flight, oldest = fields
        return MinuteRow(
            int(minute), int(workers), int(slots), _finite(busy), int(written), int(done),
            int(failed) if failed else None, int(dead), int(backlog), int(runnable), int(in_flight),
            int(oldest) / 1000 if oldest else None,
        )  # fmt: skip
    except (ValueError, OverflowError):
        return None


def task_minutes(raw: bytes) -> tuple[TaskMinute, ...]:
    """Return what was done of each task in a stored minute, most of it first.

    The text may say something of a task several times: workers write behind each other, and only what grows long is
    added up (lua/beats.lua).
    """
    rows: dict[str, list[int]] = {}
    for part in raw.decode("ascii", "replace").partition("|")[2].split(";")[:-1]:
        found = _WORK.fullmatch(part)
        if not found:
            continue
        name, *numbers, buckets = found.groups()
        if name not in rows and (len(rows) >= MAX_MINUTE_TASKS or not _NAME.fullmatch(name)):
            name = OTHER
        row = rows.setdefault(name, [0] * (3 + BUCKETS))
        for at, number in enumerate([*map(int, numbers), *_buckets(buckets)]):
            row[at] = min(row[at] + number, MAX_SUM)
    tasks = [
        TaskMinute(_unquoted(name), done, failed, ms / 1000, tuple(buckets))
        for name, (done, failed, ms, *buckets) in rows.items()
    ]
    return tuple(sorted(tasks, key=lambda each: (each.task == OTHER, -each.done - each.failed, each.task)))


def minutes_of(rows: Iterable[tuple[bytes, bytes]], first: int) -> list[Minute]:
    """Return the minutes from number *first* on, given the texts of each one's numbers and tasks, oldest first.

    The minute before *first* is there to compare with.
    """
    found: list[Minute] = []
    before: MinuteRow | None = None
    done: tuple[TaskMinute, ...] = ()
    for numbers, tasks in rows:
        row = minute_row(numbers)
        if row is not None and row.minute >= first:
            found.append(_minute(row, before, done))
        before, done = row, task_minutes(tasks)
    return found


def _minute(row: MinuteRow, before: MinuteRow | None, tasks: tuple[TaskMinute, ...]) -> Minute:
    def since(now: int | None, then: int | None) -> int | None:
        # A queue that was recreated, or a hand at its counters, makes them less.
        return None if now is None or then is None or now < then else now - then

    failed = None
    if before is not None:
        failed = since(row.failed, before.failed) if row.failed is not None else sum(each.failed for each in tasks)
    return Minute(
        at=float(row.minute * MINUTE), written=since(row.written, before and before.written),
        done=since(row.done, before and before.done), failed=failed, dead=since(row.dead, before and before.dead),
        backlog=row.backlog, runnable=row.runnable, in_flight=row.in_flight, oldest_age=row.oldest_age,
        workers=row.workers, slots=row.slots, busy=row.busy, tasks=tasks,
    )  # fmt: skip


def worker_id(name: Any, host: str, pid: int, number: int) -> str:
    """Return the id of a worker: the *name* of its client with its process, and which one of that process it is.

    >>> worker_id("web-7", "web", 7, 1), worker_id("mails", "web", 7, 2)
    ('web-7', 'mails-web-7-2')
    """
    own = f"{host}-{pid}"
    found = name if name == own else f"{name}-{own}"
    return quoted(found if number == 1 else f"{found}-{number}", 200)
