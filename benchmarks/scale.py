"""scale: a queue with partitions on a cluster of three nodes, beside a queue of one slot there.

What a node can carry is told by the CPU that it takes for a message, so other load on the machine does not count: where
nodes are busy, the throughput is that of the busiest one. `--only` takes the tables whose names have one of its texts:
scale-throughput, scale-calls, scale-pickup, scale-fairness, scale-slow.
"""

from __future__ import annotations

import math
import queue as queues
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from benchmarks import service
from benchmarks.report import Table, Target, percentile, times, us
from benchmarks.rounds import middle, ratio, server_cpu, take_turns
from benchmarks.settings import Place
from shardq import Client, Empty, Queue
from tests.promises.ideal import Ideal, p99
from tests.promises.loads import newcomers
from tests.servers import Cluster

NODES: Final = 3
NUMBERS: Final = (1, 3, 8)
"""Of partitions; with one there is no layer at all."""
SMALL: Final = 50
"""Messages in a batch, where throughput is compared."""
CARRIED: Final = {"single": 1.8, "batches": 1.8, "batches for each": 2.1}
"""How much three partitions carry at least, of what one slot carries."""
DEAREST: Final = {"single": 1.45, "batches for each": 1.1}
"""How much the CPU of all nodes may be with three partitions, of that with one slot."""
PICKUP: Final = (1.25, 2.5, 3.0)
"""Bounds of p50 and of p99 of a queue of one slot, and the ms that p99 may be longer."""
RATE: Final = 25
"""Messages a second that a blocked reader picks up."""
FLOODS: Final = 20
IDLE: Final = 2.0
"""Seconds for which idle nodes are looked at first: they take CPU to talk with each other."""
FAIR: Final = {1: 1.0, 10: 1.1, 32: 1.1}
"""By the size of a read, how long a quiet tenant may wait with three partitions, of ideal fair queueing."""
SLOW: Final = (0.15, 0.7)
"""Median and p99 of quiet waits beside slow jobs with three partitions, in S."""
SHARES: Final = (0.85, 1.2)


class Cost(NamedTuple):
    """CPU of a message in µs: of the client, of all nodes, and of the node that had most to do."""

    client: float
    server: float
    busiest: float


@dataclass(frozen=True)
class Ground(Place):
    """A cluster to run on, in place of the one server."""

    cluster: Cluster
    client: Client
    nodes: Sequence[Any]
    idle: Sequence[float]

    @property
    def url(self) -> str:
        """The cluster's URL."""
        return self.cluster.url

    def queue(self, partitions: int, **settings: Any) -> Queue:
        """Make a new queue with so many partitions."""
        chosen = self.settings
        spread = {"partitions": partitions, **settings} if partitions > 1 else settings
        sizes = {"streams": chosen.streams, "streams_per_shard": chosen.per_shard}
        queue = self.client.queue(f"scale-{uuid.uuid4().hex[:8]}", create=True, **{**sizes, **spread})
        queue.declare()
        return queue

    def cost(self, work: Callable[[], object], messages: int) -> Cost:
        """Do this *work* on so many messages, and return what each cost, but for what idle nodes take meanwhile."""
        began, before, client = time.monotonic(), [*map(server_cpu, self.nodes)], time.process_time()
        work()
        client, seconds = time.process_time() - client, time.monotonic() - began
        nodes = [
            after - since - seconds * idle
            for after, since, idle in zip(map(server_cpu, self.nodes), before, self.idle, strict=True)
        ]
        share = 1e6 / messages
        return Cost(client * share, sum(nodes) * share, max(nodes) * share)


Costs = Mapping[str, Cost]
"""By verb."""


def run(place: Place) -> Iterator[Table]:
    """Those that `--only` names."""
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(size=NODES))
        client = stack.enter_context(Client.from_url(cluster.url, timeout=60))
        nodes = [stack.enter_context(node.client()) for node in cluster.nodes]
        before = [*map(server_cpu, nodes)]
        time.sleep(IDLE)
        idle = [(after - since) / IDLE for after, since in zip(map(server_cpu, nodes), before, strict=True)]
        ground = Ground(place.server, place.settings, cluster, client, nodes, idle)
        for name, made in TABLES.items():
            if any(word in name for word in place.settings.only.split(",")):
                yield made(ground)


# --- what calls cost --------------------------------------------------------------------------------------------------


def single(ground: Ground, queue: Queue) -> Costs:
    """One message a call: written, read and acked; then written again, and each acked with the next read."""
    traffic = ground.settings.traffic()

    def write() -> None:
        for payload, key in traffic:
            queue.write(payload, shard_key=key)

    def read_and_ack() -> None:
        for _ in traffic:
            queue.read(block=1).ack()

    def read_with_ack() -> None:
        done = None
        for _ in traffic:
            done = queue.read(block=1, ack=done)
        assert done is not None
        done.ack()

    found = {"write": ground.cost(write, len(traffic)), "read, ack": ground.cost(read_and_ack, len(traffic))}
    write()
    return {**found, "read(ack=)": ground.cost(read_with_ack, len(traffic))}


def batched(ground: Ground, queue: Queue, size: int) -> Costs:
    """So many messages a call: written, read and acked."""
    traffic = ground.settings.traffic()
    batches: list[Any] = []

    def write() -> None:
        for at in range(0, len(traffic), size):
            queue.write_many(traffic[at : at + size])

    def read() -> None:
        while found := queue.read_many(size):
            batches.append(found)

    def ack() -> None:
        for each in batches:
            assert queue.ack_many(each) == []

    calls = {"write_many": write, "read_many": read, "ack_many": ack}
    found = {name: ground.cost(call, len(traffic)) for name, call in calls.items()}
    assert sum(map(len, batches)) == len(traffic)
    return found


def _measured(ground: Ground, size: int, numbers: Iterable[int]) -> dict[str, list[dict[str, Cost]]]:
    """Of each number of partitions the costs in each round, by the shape of calls and the verb."""

    def measure(name: str) -> dict[str, Cost]:
        count = int(name)
        found = {f"single|{verb}": cost for verb, cost in single(ground, ground.queue(count)).items()}
        for shape, each in {"batches": size, "batches for each": size * count}.items():
            if shape == "batches" or count > 1:
                own = batched(ground, ground.queue(count), each)
                found |= {f"{shape}|{verb}": cost for verb, cost in own.items()}
        if count == 1:  # a batch for the only one is that batch
            found |= {name.replace("batches", "batches for each"): cost for name, cost in found.items()}
        for node in ground.nodes:
            node.flushall()
        return found

    return take_turns([*map(str, numbers)], ground.settings.rounds, ground.settings.seed, measure)


def _throughput(ground: Ground) -> Table:
    runs = _measured(ground, SMALL, NUMBERS)
    busiest = {
        count: {shape: [_busiest(one, shape) for one in own] for shape in CARRIED} for count, own in runs.items()
    }
    carried = {
        count: {shape: ratio(_boxed(busiest["1"][shape]), _boxed(own[shape]), "us") for shape in CARRIED}
        for count, own in busiest.items()
    }
    names = {"single": "single calls", "batches": f"batches of {SMALL}", "batches for each": f"{SMALL} for each"}
    rows = [
        (names[shape], *(f"{us(middle(_boxed(busiest[count][shape]), 'us'))}" for count in runs),
         *(times(carried[count][shape]) for count in [*runs][1:]))
        for shape in CARRIED
    ]  # fmt: skip
    counts = [*runs]
    goals = [Target(f"P=3 carries of one slot, {names[shape]}", carried["3"][shape], least)
             for shape, least in CARRIED.items()]  # fmt: skip
    return Table(
        "scale-throughput", "CPU of the busiest node for a message that is written, read and acked",
        _context(ground), ("calls", *(f"P={each}" for each in counts), *(f"P={each} carries" for each in counts[1:])),
        rows, goals, {count: dict(own) for count, own in busiest.items()},
    )  # fmt: skip


def _busiest(one: Mapping[str, Cost], shape: str) -> float:
    """CPU of the busiest node for a message that is written, read and acked."""
    verbs = ("write", "read, ack") if shape == "single" else ("write_many", "read_many", "ack_many")
    return sum(one[f"{shape}|{verb}"].busiest for verb in verbs)


def _boxed(values: Sequence[float]) -> list[dict[str, float]]:
    return [{"us": each} for each in values]


def _calls(ground: Ground) -> Table:
    runs = _measured(ground, ground.settings.batch, NUMBERS)
    cases = [*runs["1"][0]]
    own = {case: {count: [one[case] for one in runs[count]] for count in runs} for case in cases}
    found = {
        case: {count: {what: ratio(each, by_count["1"], what) for what in ("client", "server")}
               for count, each in by_count.items()}
        for case, by_count in own.items()
    }  # fmt: skip
    rows = [
        (case.replace("|", ": "), *(us(middle(own[case]["1"], what)) for what in ("client", "server")),
         *(f"{of['client']:.2f} / {of['server']:.2f}" for count, of in found[case].items() if count != "1"))
        for case in cases
    ]  # fmt: skip
    goals = [
        Target(f"P=3, CPU of all nodes, {case.replace('|', ': ')}", found[case]["3"]["server"], DEAREST[shape], True)
        for case in cases
        if (shape := case.partition("|")[0]) in DEAREST
    ]
    return Table(
        "scale-calls", f"CPU of a message, and with partitions how many times that; batches of {ground.settings.batch}",
        _context(ground),
        ("call", "client", "nodes", *(f"P={count}: client / nodes" for count in runs if count != "1")), rows, goals,
        {case: {count: [each._asdict() for each in one] for count, one in by.items()} for case, by in own.items()},
    )  # fmt: skip


# --- how long messages wait -------------------------------------------------------------------------------------------


@dataclass
class Reader:
    """A thread with a blocked reader, which says when it got each message."""

    queue: Queue
    got: queues.SimpleQueue[float] = field(default_factory=queues.SimpleQueue)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Read and ack until it is over."""
        while not self.over.is_set():
            try:
                delivery = self.queue.read(block=0.5)
            except Empty:
                continue
            self.got.put(time.perf_counter())
            delivery.ack()


def _pickups(ground: Ground, count: int) -> list[float]:
    """How many ms a blocked reader took to get each message."""
    dice, reader, waits = random.Random(ground.settings.seed), Reader(ground.queue(count)), []
    thread = threading.Thread(target=reader.run)
    thread.start()
    try:
        for number in range(max(5, round(RATE * ground.settings.seconds / 5))):
            time.sleep(dice.expovariate(RATE))
            began = time.perf_counter()
            reader.queue.write(b"", shard_key=f"tenant-{number}")
            waits.append(1000 * (reader.got.get(timeout=30) - began))
    finally:
        reader.over.set()
        thread.join()
    return waits


def _pickup(ground: Ground) -> Table:
    runs = take_turns([*map(str, NUMBERS)], ground.settings.rounds, ground.settings.seed,
                      lambda count: _pickups(ground, int(count)), warm=0)  # fmt: skip
    waits = {count: [each for one in own for each in one] for count, own in runs.items()}
    found = {count: (percentile(own, 0.5), percentile(own, 0.99)) for count, own in waits.items()}
    rows: list[tuple[str, ...]] = [(f"P={count}", f"{own[0]:.2f}", f"{own[1]:.2f}") for count, own in found.items()]
    median, most, more = PICKUP
    plain = found["1"]
    goals = [
        goal
        for count, own in found.items()
        if count != "1"
        for goal in (
            Target(f"P={count}: p50 of one slot's", own[0] / plain[0], median, True),
            Target(f"P={count}: p99", own[1], most * plain[1] + more, True, " ms"),
        )
    ]
    title = f"How long a blocked reader takes to get a message, {RATE} a second, in ms"
    return Table("scale-pickup", title, _context(ground), ("queue", "p50", "p99"), rows, goals, dict(waits))


def _fairness(ground: Ground) -> Table:
    data = {size: {count: _waits_of_ideal(ground, count, size) for count in NUMBERS} for size in FAIR}
    rows = [(f"reads of {size}", *(f"{each:.2f}" for each in own.values())) for size, own in data.items()]
    goals = [Target(f"P=3, reads of {size}, p99 of ideal", data[size][3], FAIR[size], True) for size in FAIR]
    return Table(
        "scale-fairness", f"p99 of a quiet tenant's wait beside {FLOODS} floods, in dequeues, of ideal fair queueing",
        _context(ground), ("reads", *(f"P={count}" for count in NUMBERS)), rows, goals,
        {f"{size}": {f"{count}": each for count, each in own.items()} for size, own in data.items()},
    )  # fmt: skip


def _waits_of_ideal(ground: Ground, count: int, size: int) -> float:
    queue, ideal = ground.queue(count, streams_per_shard=4), Ideal()
    reads = max(12, ground.settings.messages // (2 * size))
    backlog = size * reads // FLOODS + size
    floods = [f"flood-{number}" for number in range(FLOODS)]
    for tenant in floods * backlog:
        ideal.write(tenant)
    for tenant in floods:
        queue.write_many([(b"", tenant)] * backlog)

    def read(wanted: int) -> list[str]:
        found = queue.read_many(wanted)
        assert queue.ack_many(found) == []
        return [str(each.shard_key) for each in found]

    def write(tenant: str) -> None:
        queue.write(b"", shard_key=tenant)

    seed = ground.settings.seed
    real = newcomers(write, read, size, reads, random.Random(seed))
    ideally = newcomers(
        ideal.write, lambda wanted: [ideal.read() for _ in range(min(wanted, len(ideal)))], size, reads,
        random.Random(seed), together=False,
    )  # fmt: skip
    return p99(real) / max(1, p99(ideally))


def _slow(ground: Ground) -> Table:
    data: dict[str, Any] = {}
    rows: list[tuple[str, ...]] = []
    for count in NUMBERS:
        settings = {"partitions": count} if count > 1 else {}
        seen, busy = service.play(
            ground, service.worker, FLOODS, lambda number, rng: service.S * rng.uniform(0.5, 1.5),
            ground.settings.seconds, **settings,
        )  # fmt: skip
        quiet = seen.waits["quiet"] or [math.inf]
        low, high = service.spread(seen, FLOODS)
        data[str(count)] = {"p50": percentile(quiet, 0.5), "p99": percentile(quiet, 0.99), "low": low, "high": high}
        shown = [f"{data[str(count)][what]:.2f}" for what in ("p50", "p99")]
        rows.append((f"P={count}", *shown, f"{low:.2f} to {high:.2f}", f"{busy:.2f}"))
    three = data["3"]
    goals = [
        Target("P=3: median of quiet waits", three["p50"], SLOW[0], True, " S"),
        Target("P=3: p99 of quiet waits", three["p99"], SLOW[1], True, " S"),
        Target("P=3: least share of a flood", three["low"], SHARES[0], unit=""),
        Target("P=3: largest share of a flood", three["high"], SHARES[1], True, ""),
    ]
    title = f"Quiet waits beside {FLOODS} floods with jobs of {service.S:g} s (S), in S, and the floods' shares of time"
    columns = ("queue", "p50", "p99", "floods' shares", "busy")
    return Table("scale-slow", title, _context(ground), columns, rows, goals, data)


def _context(ground: Ground) -> str:
    return f"{ground.described()}; on {ground.cluster.name}"


TABLES: Final[dict[str, Callable[[Ground], Table]]] = {
    "scale-throughput": _throughput, "scale-calls": _calls, "scale-pickup": _pickup, "scale-fairness": _fairness,
    "scale-slow": _slow,
}  # fmt: skip
