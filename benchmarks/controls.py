"""controls: what limits and pauses cost, how exact a rate is, and what a crowd that is held back costs the others."""

from __future__ import annotations

import threading
import time
from typing import Any, Final, NamedTuple

from benchmarks.cycles import PAYLOAD, cost_table, make_queue
from benchmarks.fairness.limited import limited
from benchmarks.prior_art import connect
from benchmarks.report import Table, Target, percentile, us
from benchmarks.settings import Place
from shardq import Client, Empty, Limits, Queue

SLOW: Final = 5000  # µs
RATE, BURST, CONSUMERS = 200.0, 10, 3
PAUSE: Final = 0.0203
"""Seconds between a quiet tenant's messages, which so meet those of others at all moments of their own pauses."""
EACH: Final = 10  # messages of each tenant of the crowd
ANOTHER: Final = "another tenant has a limit"
KINDS: Final[dict[str, dict[str, Any]]] = {
    "without limits": {},
    ANOTHER: {},
    "each tenant has a cap": {"max_in_flight": 1_000},
    "each tenant has a rate": {"rate": 100_000, "burst": 100_000},
    "the queue has a cap and a rate": {"total_in_flight": 1_000_000, "total_rate": 1_000_000},
}


def run(place: Place) -> list[Table]:
    """All tables; the queues are in the same server, each round in another order."""
    with Client.from_url(place.url) as client, connect(place.url) as server:
        floods = limited(place, client, place.settings.messages // 2)
        return [_cost(place, client, server), *_rate(place, client), floods, _crowd(place, client, server)]


def _cost(place: Place, client: Client, server: Any) -> Table:
    queues = {text: make_queue(place, client, "controls-cost", **settings) for text, settings in KINDS.items()}
    queues[ANOTHER].set_limits({"somebody": Limits(max_in_flight=1)})
    return cost_table(place, server, "controls", "What limits cost quiet tenants", queues)


# --- how exact a rate is


def _rate(place: Place, client: Client) -> list[Table]:
    """A flood is delivered at its rate by several consumers, while a quiet tenant writes now and then."""
    lasting = max(1.0, place.settings.seconds / 2)
    alone = _serve(make_queue(place, client, "controls-alone"), lasting)
    beside = _serve(make_queue(place, client, "controls-steady"), lasting, steady=True)
    queue = make_queue(place, client, "controls-rate")
    queue.set_limits({"flood": Limits(rate=RATE, burst=BURST)})
    for _ in range(4):
        queue.write_many([(PAYLOAD, "flood")] * int(RATE * lasting))
    rated = _serve(queue, lasting)
    said = f"{place.described()}; {CONSUMERS} consumers; {lasting:g} s"
    beside_whom = {
        "nobody": alone.waits,
        f"a tenant that writes {RATE:g} messages per second": beside.waits,
        "the flood": rated.waits,
    }
    return [_exactness(said, sorted(rated.others)), _pickups(said, beside_whom)]


def _exactness(said: str, delivered: list[float]) -> Table:
    exact = (len(delivered) - BURST) / (RATE * (delivered[-1] - delivered[0]))
    return Table(
        "controls-rate",
        f"A flood with a rate of {RATE:g} per second",
        said,
        ("delivered", "of the rate"),
        [(f"{len(delivered):,}", f"{exact:.4f}")],
        [Target("distance from the rate", abs(exact - 1), 0.02, True, unit="")],
        {"delivered": delivered, "rate": RATE, "burst": BURST},
    )


def _pickups(said: str, waits: dict[str, list[float]]) -> Table:
    *_, (_, steady), (_, rated) = waits.items()
    ratios = {share: percentile(rated, share) / percentile(steady, share) for share in (0.5, 0.99)}
    return Table(
        "controls-pickup",
        "Pick-up of a quiet tenant's messages beside a flood with a rate",
        said,
        ("beside", "median", "p99"),
        [(text, *(us(1e6 * percentile(each, share)) for share in (0.5, 0.99))) for text, each in waits.items()],
        [
            Target("median beside the flood, of that beside who writes so many", ratios[0.5], 1.2, True),
            Target("p99 beside the flood, of that beside who writes so many", ratios[0.99], 1.2, True),
        ],
        dict(waits),
    )


class Served(NamedTuple):
    """How long messages of a quiet tenant waited, in seconds; and when those of others were delivered."""

    waits: list[float]
    others: list[float]


def _serve(queue: Queue, lasting: float, *, steady: bool = False) -> Served:
    """Deliver what a quiet tenant writes now and then; with *steady*, also what another one writes at the rate."""
    served, over = Served([], []), threading.Event()
    threads = [threading.Thread(target=_consume, args=(queue, served, over)) for _ in range(CONSUMERS)]
    if steady:
        threads.append(threading.Thread(target=_write, args=(queue, "steady", 1 / RATE, over)))
    threads.append(threading.Thread(target=_write, args=(queue, "quiet", PAUSE, over)))
    for thread in threads:
        thread.start()
    over.wait(lasting)
    over.set()
    for thread in threads:
        thread.join()
    return served


def _write(queue: Queue, shard_key: str, pause: float, over: threading.Event) -> None:
    due = time.perf_counter()
    while not over.wait(max(0.0, due - time.perf_counter())):
        queue.write(time.perf_counter(), shard_key=shard_key)
        due += pause


def _consume(queue: Queue, served: Served, over: threading.Event) -> None:
    while not over.is_set():
        try:
            delivery = queue.read(block=0.2)
        except Empty:
            continue
        now = time.perf_counter()
        if delivery.shard_key == "quiet":
            served.waits.append(now - delivery.payload)
        else:
            served.others.append(now)
        delivery.ack()


# --- a crowd that is held back


def _crowd(place: Place, client: Client, server: Any) -> Table:
    """Each tenant of a crowd has a cap of one message in flight, which is there; beside it a quiet tenant."""
    tenants, looks = 20 * place.settings.messages, max(20, place.settings.messages // 5)
    alone = _singles(make_queue(place, client, "controls-empty", max_in_flight=1), looks)
    queue = make_queue(place, client, "controls-crowd", max_in_flight=1)
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
    assert (stats.limited, stats.runnable, len(first)) == (tenants * (EACH - 1), 0, 10)
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
