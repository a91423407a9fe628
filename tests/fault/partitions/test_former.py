"""A real client of the version before partitions beside others: nothing is lost, and doctor tells what it cannot see."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Lock, Thread

import pytest

from shardq import Client, Queue
from shardq.cli import main
from shardq.cli.findings import of_partitions
from shardq.partitions import asking, parts, resize
from shardq.partitions.homes import home
from tests.fault.partitions.former import FormerClient
from tests.parts import BEFORE_PARTITIONS, HISTORY
from tests.servers import Cluster
from tests.waiting import eventually

PARTITIONS = 3
TENANTS = [f"tenant-{number}" for number in range(20)]
OTHERS = [each for each in TENANTS if home(each, PARTITIONS)]
"""Those that do not live in the head."""
SOON = 60.0
ROOT = Path(__file__).parents[3]

pytestmark = [pytest.mark.runs_in("test-all"), HISTORY.needed]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A map is old after a tenth of the time. The former client knows of none."""
    for room in (asking, parts):
        monkeypatch.setattr(room, "MAX_AGE", 0.5)
    monkeypatch.setattr(resize, "PAUSE_SECONDS", 1.0)


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library as it was, with its scripts."""
    folder = tmp_path_factory.mktemp("former")
    archive = subprocess.run(
        ["git", "-C", ROOT, "archive", BEFORE_PARTITIONS, "shardq", "lua"], check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    assert not (folder / "shardq" / "partitions").exists()
    return folder


@pytest.fixture
def queue(cluster: Cluster, queue_name: str) -> Iterator[Queue]:
    with Client.from_url(cluster.url, timeout=SOON) as client:
        queue = client.queue(queue_name, streams=4, streams_per_shard=2)
        queue.declare()
        yield queue


@pytest.fixture
def former(code: Path, cluster: Cluster, queue: Queue) -> Iterator[FormerClient]:
    with FormerClient(code, cluster.url, queue.name) as former:
        assert Path(former.ask("where")).is_relative_to(code)
        yield former


def test_nothing_is_lost_while_it_writes_and_reads_beside_others_and_the_queue_is_resized(
    cluster: Cluster, queue: Queue, former: FormerClient
) -> None:
    lock, over, failed = Lock(), Event(), list[Exception]()
    written, read = Counter[str](), Counter[str]()

    def pairs(name: str, number: int) -> list[tuple[str, str]]:
        return [(f"{name}.{number + at}", TENANTS[(number + at) % len(TENANTS)]) for at in range(3)]

    def go_on_as_before(queue: Queue) -> None:
        number = 0
        while not over.is_set():
            one, *others = pairs("former", number)
            former.ask("write", *one)
            former.ask("write_many", *others)
            found = former.ask("read", 5)
            with lock:
                written.update(payload for payload, _ in (one, *others))
                read.update(found)
            number += 3

    def write(queue: Queue) -> None:
        number = 0
        while not over.is_set():
            queue.write_many(some := pairs("new", number))
            with lock:
                written.update(payload for payload, _ in some)
            number += 3

    def consume(queue: Queue) -> None:
        while not (over.is_set() and queue.len() == 0):
            found = queue.read_many(5, block=0.1)
            assert queue.ack_many(found) == []
            with lock:
                read.update(str(each.payload) for each in found)

    def run(number: int) -> None:
        try:
            with Client.from_url(cluster.url, timeout=SOON) as client:
                (go_on_as_before, write, consume)[number](client.queue(queue.name))
        except Exception as error:  # noqa: BLE001 (the test raises it)
            failed.append(error)

    def of_former() -> int:
        return sum(payload.startswith("former") for payload in [*written])

    threads = [Thread(target=run, args=(number,)) for number in range(3)]
    for each in threads:
        each.start()
    try:
        for wanted in (3, 5, 2):
            queue.resize(partitions=wanted)
            with lock:
                counts = written.total(), of_former()

            def has_gone_on(counts: tuple[int, int] = counts) -> bool:
                with lock:
                    return bool(failed) or (written.total() > counts[0] + 60 and of_former() > counts[1] + 9)

            eventually(has_gone_on, SOON)
    finally:
        over.set()
        for each in threads:
            each.join(SOON)
    assert failed == []
    for found in (former.ask("read", 1000), queue.read_many(1000)):
        assert found == []
    assert read == written


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
