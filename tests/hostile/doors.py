"""The doors: where something comes in from outside. Each has what is good there, and takes what is not."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from starlette.testclient import TestClient

from shardq.bearer import fresh_token
from shardq.dashboard.people import People
from shardq.declared import declaration
from shardq.edge import Edge, EdgeMessage
from shardq.edge.spool import Spool
from shardq.exporter.externalscaler import ScaledObjectRef
from shardq.exporter.trigger import trigger_of
from shardq.gateway.tokens import Tokens
from shardq.jobs import archive
from shardq.jobs.folder import TableFolder
from shardq.jobs.schema import EVENTS
from shardq.model import Where
from shardq.model.timetable import Timetable
from shardq.ops.schedules.record import ScheduleRecord, record_of, stored_record
from shardq.protocol import actions, replies
from shardq.reports.folder import Files
from shardq.reports.tables import Tables
from shardq.spark import options
from shardq.testing import ManualClock
from shardq.whatif.alternative import alternatives
from tests.dashboard.asking import ADDRESS, OWN, asking
from tests.hostile.spoil import spoiled, word
from tests.reports.rows import folder_of, job, waiting, worker

_, DIGEST = fresh_token()
SECRET: Final = "hush-4711"
"""A payload, which no error shows."""


class Door(NamedTuple):
    """Who takes what comes in, raising nothing but errors of shardq's own, and what is good there."""

    name: str
    modules: tuple[str, ...]
    """Who decodes it."""
    good: Any
    take: Callable[[Any], object]
    share: float = 1.0
    """How many inputs it gets, beside the others: fewer if each takes long."""
    spoil: Callable[[random.Random, Any], Any] = spoiled
    """Makes an input of what is good."""


def doors(folder: Path) -> list[Door]:
    """All that are tried without a server. What they need is made in an empty *folder*."""
    return [
        *_settings(folder),
        *_stored(),
        *_tables(folder),
        _spool(folder),
        _scaler(),
        _options(),
        _dashboard(),
    ]


def _read(path: Path, take: Callable[[Path], object]) -> Callable[[bytes], None]:
    """Take what is in a file, which is as it was after that."""

    def taken(raw: bytes) -> None:
        path.write_bytes(raw)
        try:
            take(path)
        finally:
            assert path.read_bytes() == raw, "it was written to"

    return taken


# --- files of settings -----------------------------------------------------------------------------------------

QUEUES: Final = b"""
[queues.jobs]
streams = 8
window = 4
visibility_timeout = 30.0
weights = { acme = 3 }
limits = { acme = { rate = 5.0, max_in_flight = 2 }, other = "free" }
plans = { free = { rate = 1.0, burst = 2 } }
assignment = { keys = ["a", "b"], max_overlap = 1 }

[[bindings]]
pattern = "orders.#"
queue = "jobs"
"""
TOKENS: Final = f"""
[[tokens]]
name = "edge-7"
sha256 = "{DIGEST}"
queues = ["jobs", "mails.*"]
topics = ["orders.*"]
shard_keys = ["t", "u/*"]
messages_per_second = 10
bytes_per_second = 1000
max_message = 50000
expires = 2030-01-01T00:00:00Z
""".encode()
PEOPLE: Final = (
    f'[[people]]\nname = "mara"\nrole = "act"\nsha256 = ["{DIGEST}"]\nexpires = 2030-01-01T00:00:00Z\n'.encode()
)
ALTERNATIVES: Final = b"""
[more]
workers = 4
slots = 2
window = 8
limits = { acme = { rate = 5.0 } }
"""


def _settings(folder: Path) -> list[Door]:
    return [
        Door("declared queues", ("shardq.declared.declaration",), QUEUES, declaration.parsed),
        Door("alternatives", ("shardq.whatif.alternative",), ALTERNATIVES, alternatives),
        Door("tokens", ("shardq.gateway.tokens",), TOKENS, _read(folder / "tokens.toml", Tokens.read)),
        Door("people", ("shardq.dashboard.people",), PEOPLE, _read(folder / "people.toml", People.read)),
    ]


# --- what is in Redis, where any program may write ---------------------------------------------------------------

EVENT: Final = b"\n".join(
    [b"da", b"1732150000000|6|0,1", b"1,0", b"1,", b"5,", b"host-7\x1fmara\x1fwhy", b"135,;125,", b"t"]
)
ACTION: Final = (
    b"running host-1 1 2 3 4 5 6 7 - 1732150000000 5 1732150000000-9 1732150000000-0\n1-1\n\n"
    + actions.spelled(
        actions.AskedAction("redrive", Where(tenant="t", state="dead"), "mara", rate=2.5, limit=5)
    ).encode()
)
RECORD: Final = ScheduleRecord(Timetable(every=60), b"t", "once", "j", SECRET.encode())


def _stored() -> list[Door]:
    def journal(raw: bytes) -> None:
        fields = [b"2", raw] if len(raw) % 7 else [raw[:1], raw]
        replies.journal_page([b"1732150000000-abc", b"9", b"", [(b"7-1732150000000", fields)]], 0, 100)

    return [
        Door("journal", ("shardq.protocol.journal",), EVENT, journal),
        Door("actions", ("shardq.protocol.actions",), ACTION, actions.stored),
        Door("schedules", ("shardq.ops.schedules.record",), b"3:abc" + stored_record(RECORD), record_of),
    ]


# --- files of tables ---------------------------------------------------------------------------------------------


def _tables(folder: Path) -> list[Door]:
    jobs = folder_of(
        folder / "jobs",
        [job("t", 1), job("u", 2), waiting("t", 3)],
        capacity=[worker("w", 0, 9, 2), worker("w", 9, None, 2)],
    )
    part = next(jobs.glob("jobs/day=*/run=*/*.parquet"))
    run = next(jobs.glob("runs/*.json"))
    day = folder / "archive" / "journal" / "batch=000000000000" / "queue=jobs" / "day=2026-11-30"
    day.mkdir(parents=True)
    now = datetime(2026, 11, 30, tzinfo=UTC)
    event = dict.fromkeys(EVENTS.names) | {"queue_id": "1-a", "partition": 0, "number": 1, "time": now, "kind": "acked"}
    rows = pa.Table.from_pylist([event] * 3, schema=EVENTS).drop_columns(["queue"])
    pq.write_table(rows, day / "part.parquet")

    def reported(_: Path) -> None:
        tables = Tables(Files(jobs))
        try:
            tables.rows("used")
        finally:
            tables.close()

    table, archived, said = part.read_bytes(), (day / "part.parquet").read_bytes(), run.read_bytes()
    copies = {part: table, run: said}

    def whole(path: Path, take: Callable[[Path], object]) -> Callable[[bytes], None]:
        """What is in the other files is good."""
        taken = _read(path, take)

        def one(raw: bytes) -> None:
            for other, good in copies.items():
                if other != path and other.read_bytes() != good:
                    other.write_bytes(good)
            taken(raw)

        return one

    return [
        Door("jobs", ("shardq.jobs.folder",), table, whole(part, lambda _: TableFolder(jobs).table("jobs")), 0.1),
        Door("run of jobs", ("shardq.jobs.folder",), said, whole(run, lambda _: TableFolder(jobs).newest())),
        Door("report", ("shardq.reports.tables",), table, whole(part, reported), 0.01),
        Door("archive", ("shardq.jobs.archive",), archived, _read(
            day / "part.parquet", lambda _: [*archive.steps(folder / "archive", [])]
        ), 0.02),
    ]  # fmt: skip


# --- the spool of an edge producer -------------------------------------------------------------------------------


def _spool(folder: Path) -> Door:
    path = folder / "spool"
    with Edge(f"unix:{folder}/nowhere", spool=path) as edge:
        edge.send_many([EdgeMessage(SECRET * 30, "t", queue="jobs")] * 20)
    good = path.read_bytes()

    def take(raw: bytes) -> None:
        for each in folder.glob("spool*"):
            each.unlink()
        path.write_bytes(raw)
        spool = Spool(path)
        try:
            spool.after(0, 100, 10**6)
            spool.counts()
            spool.check()
        finally:
            spool.close()

    return Door("spool", ("shardq.edge.file",), good, take, 0.03)


# --- who asks ----------------------------------------------------------------------------------------------------


def _scaler() -> Door:
    good = {"queue": "jobs", "metric": "age", "target": "0.5", "lead": "12.5", "activation": "3"}

    def spoil(rng: random.Random, _: bytes) -> bytes:
        found = {key: word(rng, value) for key, value in good.items() if rng.random() < 0.9}
        if rng.random() < 0.2:
            found[word(rng, "queueFromEnv")] = word(rng, "jobs")
        raw = ScaledObjectRef(name="worker", scalerMetadata=found).SerializeToString()
        return spoiled(rng, raw) if rng.random() < 0.3 else bytes(raw)

    def take(raw: bytes) -> None:
        trigger_of(dict(ScaledObjectRef.FromString(raw).scalerMetadata))

    raw = ScaledObjectRef(name="worker", scalerMetadata=good).SerializeToString()
    return Door("scaler", ("shardq.exporter.keda",), raw, take, spoil=spoil)


KINDS: Final = (options.Writing, options.Reading, options.Consuming)
VALUES: Final[Mapping[str, str]] = {
    "url": "redis://x", "queue": "jobs", "subscribe": "jobs, mails", "state": "dead", "startingOffsets": '{"jobs": 5}',
    "endingOffsets": '{"jobs#1": {"to": 7}}', "durability": "replica(1)", "schema": "a INT", "codec": "j",
    "mode": "FAILFAST",
}  # fmt: skip


def _options() -> Door:
    def spoil(rng: random.Random, _: Any) -> Any:
        kind = rng.choice(KINDS)
        names = [options.spelled(each) for each in kind.__dataclass_fields__]
        chosen = {"url", *rng.sample(names, rng.randrange(1, 6))}
        given = {name: word(rng, VALUES.get(name, rng.choice(("1", "true", "10")))) for name in sorted(chosen)}
        if rng.random() < 0.1:
            given[rng.choice(("QUEUE", "queryName", *chosen)).swapcase()] = word(rng)
        return kind, given

    def take(made: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # what Python says of a pattern: it is not refused for it
            found = options.parsed(*made)
        for option in ("startingOffsets", "endingOffsets") if isinstance(found, options.Reading) else ():
            if getattr(found, "starting_offsets" if option == "startingOffsets" else "ending_offsets").startswith("{"):
                options.place_of(found.point(option, "jobs#1"))

    good = (options.Writing, {"url": "redis://x", "queue": "jobs"})
    return Door("options of Spark", ("shardq.spark.options",), good, take, spoil=spoil)


PATHS: Final = (
    "/",
    "/login",
    "/act/pause",
    "/look/overview",
    "/look/queue",
    "/live",
    "/js/app.js",
    "/who",
    "/act/retry",
    "/css/..",
)
HEADERS: Final[Mapping[str, str]] = {
    **OWN, "host": "127.0.0.1:8321", "cookie": "shardq=abc", "content-type": "application/json",
    "accept-encoding": "gzip", "if-none-match": '"abc"', "sec-fetch-site": "same-origin", "last-event-id": "5",
    "x-forwarded-for": "10.0.0.1",
}  # fmt: skip


def _dashboard() -> Door:
    browser = TestClient(asking(ManualClock()).page, base_url=ADDRESS, follow_redirects=False)

    def spoil(rng: random.Random, _: Any) -> Any:
        path = rng.choice(PATHS) + rng.choice(("", "", "/" + word(rng)[:500], "?" + word(rng, "order=dead")[:500]))
        headers = {name: word(rng, value) for name, value in HEADERS.items() if rng.random() < 0.7}
        usable = {name: "".join(filter(str.isprintable, text)).encode()[:5_000] for name, text in headers.items()}
        body = spoiled(rng, b'{"queue": "jobs", "token": "x"}') if rng.random() < 0.5 else b""
        return rng.choice(("GET", "GET", "POST", "HEAD", "PUT")), "".join(filter(str.isprintable, path)), usable, body

    def take(made: Any) -> None:
        method, path, headers, body = made
        with browser.stream(method, ADDRESS + path, headers=headers, content=body) as answer:
            assert answer.status_code < 500 or answer.status_code == 503, answer.status_code

    good = ("GET", "/login", {"host": "127.0.0.1:8321"}, b"")
    return Door("dashboard", ("shardq.dashboard.login", "shardq.dashboard.actions.routes"), good, take, 0.3, spoil)
