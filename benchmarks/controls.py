"""controls: what limits and pauses cost, how exact a rate is, and what a crowd that is held back costs the others."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, Final

from benchmarks.prior_art import connect
from benchmarks.report import Table, Target, percentile, times, us
from benchmarks.rounds import Contender, middle, ratio, take_runs
from benchmarks.settings import Place
from shardq import Client, Empty, Limits, Queue

PAYLOAD: Final = b"x" * 100
SLOW: Final = 5000  # µs
RATE, BURST, CONSUMERS = 200.0, 10, 3
EACH: Final = 10  # messages of each tenant of the crowd
KINDS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "none": ("without limits", {}),
    "another": ("another tenant has a limit", {}),
    "capped": ("each tenant has a cap", {"max_in_flight": 1_000}),
    "rated": ("each tenant has a rate", {"rate": 100_000, "burst": 100_000}),
    "total": ("the queue has a cap and a rate", {"total_in_flight": 1_000_000, "total_rate": 1_000_000}),
}


def run(place: Place) -> list[Table]:
    """All tables; the queues are in the same server, each round in another order."""
    with Client.from_url(place.url) as client, connect(place.url) as server:
        return [_cost(place, client, server), _rate(place, client), _crowd(place, client, server)]


def _queue(place: Place, client: Client, name: str, **settings: Any) -> Queue:
    chosen = place.settings
    made = client.queue(
        f"controls-{name}-{uuid.uuid4().hex[:8]}",
        streams=chosen.streams,
        streams_per_shard=chosen.per_shard,
        visibility_timeout=600.0,
        **settings,
    )
    made.declare()
    return made


# --- what they cost


def _cycle(queue: Queue, messages: int, batch: int) -> None:
    """Write, read and ack for quiet tenants: in batches, or one at a time (*batch* 1)."""
    for start in range(0, messages, batch):
        if batch == 1:
            queue.write(PAYLOAD, shard_key=f"t{start % 1000}")
            queue.read().ack()
            continue
        queue.write_many([(PAYLOAD, f"t{number % 1000}") for number in range(start, start + batch)])
        left = batch
        while left:
            found = queue.read_many(left)
            left -= len(found)
            assert not queue.ack_many(found)


def _cost(place: Place, client: Client, server: Any) -> Table:
    chosen = place.settings
    sizes = {chosen.batch: chosen.messages, 1: max(20, chosen.messages // 5)}
    queues = {kind: _queue(place, client, kind, **settings) for kind, (_, settings) in KINDS.items()}
    queues["another"].set_limits({"somebody": Limits(max_in_flight=1)})
    contenders = [
        Contender(f"{kind}|{batch}", messages, _running(queue, messages, batch))
        for kind, queue in queues.items()
        for batch, messages in sizes.items()
    ]
    runs = take_runs(server, contenders, chosen.rounds, chosen.seed)
    rows: list[tuple[str, ...]] = [
        (f"{text}, {_shape(batch)}", us(middle(runs[f"{kind}|{batch}"], "server")),
         times(ratio(runs[f"{kind}|{batch}"], runs[f"none|{batch}"], "server")),
         times(ratio(runs[f"{kind}|{batch}"], runs[f"none|{batch}"], "wall")))
        for kind, (text, _) in KINDS.items()
        for batch in sizes
    ]  # fmt: skip
    return Table(
        "controls",
        "What limits cost quiet tenants",
        place.described(),
        ("written, read and acked", "server CPU", "of none", "by the clock"),
        rows,
        data={name: [run._asdict() for run in each] for name, each in runs.items()},
    )


def _shape(batch: int) -> str:
    return "one at a time" if batch == 1 else f"in batches of {batch}"


def _running(queue: Queue, messages: int, batch: int) -> Callable[[], Any]:
    return lambda: _cycle(queue, messages, batch)


# --- how exact a rate is


def _rate(place: Place, client: Client) -> Table:
    """A flood is delivered at its rate by several consumers, while a quiet tenant writes now and then."""
    lasting = max(1.0, place.settings.seconds / 2)
    alone = _waits(place, client, lasting / 2, None)
    queue = _queue(place, client, "rate")
    queue.set_limits({"flood": Limits(rate=RATE, burst=BURST)})
    for _ in range(4):
        queue.write_many([(PAYLOAD, "flood")] * int(RATE * lasting))
    counted: list[float] = []
    waits = _waits(place, client, lasting, queue, counted)
    delivered, over = len(counted), counted[-1] - counted[0]
    exact = (delivered - BURST) / (RATE * over)
    wait = {name: percentile(each, 0.5) for name, each in (("alone", alone), ("beside", waits))}
    p99 = {name: percentile(each, 0.99) for name, each in (("alone", alone), ("beside", waits))}
    rows: list[tuple[str, ...]] = [
        ("messages of the flood", f"{delivered:,}", f"{exact:.4f} of the rate"),
        ("pick-up of a quiet tenant, median", f"{1e6 * wait['beside']:.0f} µs", f"alone {1e6 * wait['alone']:.0f} µs"),
        ("pick-up of a quiet tenant, p99", f"{1e6 * p99['beside']:.0f} µs", f"alone {1e6 * p99['alone']:.0f} µs"),
    ]
    return Table(
        "controls-rate",
        f"A flood with a rate of {RATE:g} per second, {CONSUMERS} consumers",
        f"{place.described()}; {lasting:g} s",
        ("", "measured", "beside"),
        rows,
        [Target("distance from the rate", abs(exact - 1), 0.02, True, unit="")],
        {"delivered": counted, "alone": alone, "beside": waits, "rate": RATE, "burst": BURST},
    )


def _waits(
    place: Place, client: Client, lasting: float, queue: Queue | None, counted: list[float] | None = None
) -> list[float]:
    """How long messages of a quiet tenant waited for blocked consumers, in seconds."""
    jobs = queue or _queue(place, client, "alone")
    waits: list[float] = []
    over = threading.Event()

    def consume() -> None:
        while not over.is_set():
            try:
                delivery = jobs.read(block=0.2)
            except Empty:
                continue
            now = time.perf_counter()
            if delivery.shard_key == "quiet":
                waits.append(now - delivery.payload)
            elif counted is not None:
                counted.append(now)
            delivery.ack()

    consumers = [threading.Thread(target=consume) for _ in range(CONSUMERS)]
    for consumer in consumers:
        consumer.start()
    end = time.perf_counter() + lasting
    while time.perf_counter() < end:
        time.sleep(0.02)
        jobs.write(time.perf_counter(), shard_key="quiet")
    over.set()
    for consumer in consumers:
        consumer.join()
    if counted is not None:
        counted.sort()
    return waits


# --- a crowd that is held back


def _crowd(place: Place, client: Client, server: Any) -> Table:
    """Each tenant of a crowd has a cap of one message in flight, which is there; beside it a quiet tenant."""
    tenants, looks = 20 * place.settings.messages, max(20, place.settings.messages // 5)
    alone = _singles(_queue(place, client, "empty", max_in_flight=1), looks)
    queue = _queue(place, client, "crowd", max_in_flight=1)
    server.config_set("slowlog-log-slower-than", SLOW)
    server.config_set("slowlog-max-len", 100_000)
    server.slowlog_reset()
    rows = [(PAYLOAD, f"tenant-{number}") for number in range(tenants)]
    for _ in range(EACH):
        for start in range(0, tenants, 500):
            queue.write_many(rows[start : start + 500])
    held = 0
    while held < tenants:
        held += len(queue.read_many(500, visibility_timeout=3600))
    written = _slow(server)
    crowd = _singles(queue, looks)
    begun = time.perf_counter()
    first = queue.tenants(limit=10)
    survey = time.perf_counter() - begun
    slow = _slow(server)
    stats = queue.stats()
    assert (stats.withheld, stats.runnable, len(first)) == (tenants * (EACH - 1), 0, 10)
    at = {name: percentile(each, 0.99) for name, each in (("alone", alone), ("crowd", crowd))}
    return Table(
        "controls-crowd",
        f"{tenants:,} capped tenants with {tenants * EACH:,} messages beside a quiet one",
        place.described(),
        ("", "measured"),
        [
            ("written, read and acked by the quiet tenant, p99", f"{1e6 * at['crowd']:.0f} µs"),
            ("the same in an empty queue", f"{1e6 * at['alone']:.0f} µs"),
            ("scripts of more than 5 ms, then", f"{len(slow)}"),
            ("the same while the crowd was written and read", f"{len(written)}"),
            ("a survey of all tenants", f"{survey:.2f} s"),
        ],
        [
            Target("p99 beside the crowd", at["crowd"] / at["alone"], 3, True),
            Target("scripts of more than 5 ms beside the crowd", float(len(slow)), 0, True, unit=""),
        ],
        {"alone": alone, "crowd": crowd, "slow": slow, "written": written, "survey": survey},
    )


def _slow(server: Any) -> list[int]:
    """The scripts of more than 5 ms since this was asked last, in µs."""
    found = [entry["duration"] for entry in server.slowlog_get(100_000) if b"EVALSHA" in entry["command"]]
    server.slowlog_reset()
    return found


def _singles(queue: Queue, looks: int) -> list[float]:
    found = []
    for number in range(looks):
        begun = time.perf_counter()
        queue.write(number, shard_key="quiet")
        queue.read().ack()
        found.append(time.perf_counter() - begun)
    return found
