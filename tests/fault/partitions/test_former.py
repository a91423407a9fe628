"""A real client of the version before partitions beside others: nothing is lost, and doctor tells what it misses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock

import pytest

from shardq import Client, Queue
from shardq.cli import main
from shardq.cli.findings import of_partitions
from tests.fault.partitions.beside import OTHERS, PARTITIONS, SOON, TENANTS, queue, quick
from tests.fault.partitions.former import FormerClient
from tests.parts import BEFORE_PARTITIONS, HISTORY
from tests.servers import Cluster
from tests.upgrade.sources import code_of
from tests.waiting import eventually

__all__ = ["queue", "quick"]  # pytest finds the fixtures here

pytestmark = [pytest.mark.runs_in("test-all"), HISTORY.needed]


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library as it was, with its scripts."""
    folder = code_of(BEFORE_PARTITIONS, tmp_path_factory.mktemp("former"))
    assert not (folder / "shardq" / "partitions").exists()
    return folder


@pytest.fixture
def former(code: Path, cluster: Cluster, queue: Queue) -> Iterator[FormerClient]:
    with FormerClient(code, cluster.url, queue.name) as former:
        assert Path(former.ask("where")).is_relative_to(code)
        yield former


@dataclass
class Traffic:
    """What was written and read, of whom; all go on until it is over."""

    written: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)
    over: Event = field(default_factory=Event)
    lock: Lock = field(default_factory=Lock)

    def note(self, written: Iterable[str] = (), read: Iterable[str] = ()) -> None:
        with self.lock:
            self.written.update(written)
            self.read.update(read)

    def count(self, name: str) -> int:
        """How many of that name were written."""
        with self.lock:
            return sum(payload.startswith(name) for payload in self.written)


def pairs(name: str, number: int) -> list[tuple[str, str]]:
    """Three messages: payloads that no others have, and shard keys."""
    return [(f"{name}.{number}.{at}", TENANTS[(3 * number + at) % len(TENANTS)]) for at in range(3)]


def go_on_as_before(traffic: Traffic, former: FormerClient) -> None:
    number = 0
    while not traffic.over.is_set():
        one, *others = pairs("former", number := number + 1)
        former.ask("write", *one)
        former.ask("write_many", *others)
        traffic.note((payload for payload, _ in (one, *others)), former.ask("read", 5))


def write(traffic: Traffic, queue: Queue) -> None:
    number = 0
    while not traffic.over.is_set():
        queue.write_many(some := pairs("new", number := number + 1))
        traffic.note(payload for payload, _ in some)


def consume(traffic: Traffic, queue: Queue) -> None:
    while not (traffic.over.is_set() and queue.len() == 0):
        found = queue.read_many(5, block=0.1)
        assert queue.ack_many(found) == []
        traffic.note(read=(str(each.payload) for each in found))


def test_nothing_is_lost_while_it_writes_and_reads_beside_others_and_the_queue_is_resized(
    cluster: Cluster, queue: Queue, former: FormerClient
) -> None:
    traffic = Traffic()
    with ExitStack() as stack:
        others = [stack.enter_context(Client.from_url(cluster.url, timeout=SOON)) for _ in range(2)]
        pool = stack.enter_context(ThreadPoolExecutor(3))
        stack.callback(traffic.over.set)
        running = [
            pool.submit(go_on_as_before, traffic, former),
            *(
                pool.submit(run, traffic, each.queue(queue.name))
                for run, each in zip((write, consume), others, strict=True)
            ),
        ]
        for wanted in (3, 5, 2):
            queue.resize(partitions=wanted)
            counts = [(name, traffic.count(name)) for name in ("former", "new")]

            def has_gone_on(counts: list[tuple[str, int]] = counts) -> bool:
                is_over = any(each.done() for each in running)  # one has failed
                return is_over or all(traffic.count(name) > count + 30 for name, count in counts)

            eventually(has_gone_on, SOON)
        traffic.over.set()
        for each in running:
            each.result(SOON)
    assert (former.ask("read", 1000), queue.read_many(1000)) == ([], [])
    assert traffic.read == traffic.written


def test_what_it_cannot_see_waits_for_the_others_and_doctor_tells(
    cluster: Cluster, queue: Queue, former: FormerClient, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    queue.resize(partitions=PARTITIONS)
    former.ask("write_many", *[(each, each) for each in TENANTS])
    queue.write_many([(f"new {each}", each) for each in OTHERS])
    assert (former.ask("len"), queue.len()) == (len(TENANTS), len(TENANTS) + len(OTHERS))
    assert sorted(former.ask("read", 100)) == sorted(TENANTS)
    assert (former.ask("len"), former.ask("read", 100), queue.len()) == (0, [], len(OTHERS))
    monkeypatch.setattr(of_partitions, "UNSEEN_SECONDS", 0.1)

    def is_told() -> bool:
        main(["--url", cluster.url, "server", "doctor", queue.name])
        return "may be of a version before partitions" in capsys.readouterr().out

    eventually(is_told, SOON)
    found = queue.read_many(100)
    assert sorted(str(each.payload) for each in found) == sorted(f"new {each}" for each in OTHERS)
    assert queue.ack_many(found) == []
    assert not is_told()


def test_what_it_changes_leaves_the_map_as_it_is(queue: Queue, former: FormerClient) -> None:
    """It changes the head alone; who knows of the others gives them all the same."""
    queue.resize(partitions=PARTITIONS)
    assert former.ask("configure", {"max_deliveries": 7}) == 7
    former.ask("resize", 8)
    assert [each.is_written for each in queue.partitions()] == [True] * PARTITIONS
    queue.write_many([(each, each) for each in TENANTS])
    assert former.ask("len") < queue.len() == len(TENANTS)
    queue.configure(max_deliveries=9)
    assert {each.config.max_deliveries for each in queue.state.parts.states} == {9}
