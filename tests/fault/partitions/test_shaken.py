"""A queue of a cluster is resized again and again under load, while connections are cut, nodes killed, slots moved.

Nothing is lost or doubled, no sum is out of bounds, and what is drained is gone. There is one round of disturbances for
each resize, and in `make soak` there are several.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from shardq import Client
from shardq.partitions import asking, parts, resize, tidy
from tests.conftest import Record
from tests.fault.partitions.shaken import Load, again, broken, found_in, out_of_bounds
from tests.fault.partitions.spares import SpareCluster
from tests.selection import SOAK
from tests.servers import ServerKind
from tests.soak.history import came_back
from tests.waiting import eventually

SIZES = (4, 8, 3, 1, 6)
ROUNDS = 4 if SOAK else 1
"""How often each size is shaken, from each side."""

LIMIT = 900 if SOAK else 300

pytestmark = [pytest.mark.runs_in("test-all", "soak"), pytest.mark.timeout(LIMIT)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A map is old after a fifth of the time, and who may remove a partition looks often."""
    for room in (asking, parts):
        monkeypatch.setattr(room, "MAX_AGE", 1.0)
    monkeypatch.setattr(resize, "PAUSE_SECONDS", 1.5)
    monkeypatch.setattr(tidy, "TIDY_INTERVAL", 0.2)
    monkeypatch.setattr(tidy, "LOOK_INTERVAL", 0.2)


@pytest.fixture
def spares(kind: ServerKind | None, quick_disk: Path) -> Iterator[SpareCluster]:
    with SpareCluster(kind, quick_disk) as cluster:
        yield cluster


class Shaking:
    """What is done to a cluster and a queue under load."""

    def __init__(self, cluster: SpareCluster, name: str, rng: random.Random) -> None:
        self.cluster, self._name, self._rng = cluster, name, rng
        self._acts: list[Callable[[], object]] = [
            self.cut, self.move, lambda: cluster.restart_one(self._any()), lambda: cluster.hand_over(self._any()),
        ]  # fmt: skip

    def shake(self) -> None:
        """Do each of it, in any order."""
        for _ in range(ROUNDS):
            for act in self._rng.sample(self._acts, len(self._acts)):
                act()

    def cut(self) -> None:
        """Close all connections."""
        for node in self.cluster.members:
            node.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def move(self) -> None:
        """Move the slot of one of the partitions."""
        with Client.from_url(self.cluster.url, timeout=60) as client:
            queue: Any = client.queue(self._name, create=False)
            queue.len()
            states = queue.state.parts.states if queue.state.parts else [queue.state]
            self.cluster.move_on(self._rng.choice(states).keys.meta)

    def _any(self) -> Any:
        return self._rng.choice(self.cluster.primaries())


def test_nothing_is_lost_or_doubled_while_nodes_are_killed_and_slots_moved(
    spares: SpareCluster,
    queue_name: str,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Record,
) -> None:
    """A node that is killed starts again with all that it answered for; one that is replaced hands all over before."""
    load = Load(spares.url, queue_name, seed)
    shaking = Shaking(spares, queue_name, random.Random(seed))
    with Client.from_url(spares.url, timeout=60) as client:
        queue = client.queue(queue_name, streams=4, streams_per_shard=2, max_deliveries=1000, dedup_window=1.0)
        queue.declare()
        with load.begun():
            for wanted in SIZES:
                _resize_shaken(spares.url, queue_name, wanted, shaking)
                load.works()
                if wanted == 1:
                    with monkeypatch.context() as calm:
                        calm.setattr(tidy, "RETENTION", 1.0)
                        eventually(lambda: load.failed or len(queue.partitions()) == 1, 60, what="the drained are gone")
                    assert load.failed == []
                    assert not [key for key in _keys(spares) if b"#" in key]
            load.end(lambda: queue.len() == 0)
        assert [each.is_written for each in queue.partitions()] == [True] * 6
    found = found_in(load.events)
    back = came_back(found)
    sums = sum(1 for each in load.events if each["e"] == "counted")
    record_property(
        "note",
        f"shaken: {len(found.ids):,} messages, {len(found.leases):,} deliveries ({len(again(found)):,} again, "
        f"{len(back):,} of what was acked), {sums:,} sums",
    )
    assert broken(found) == {}
    assert back == []
    assert out_of_bounds(load.events) == []


def test_the_judges_see_what_is_wrong() -> None:
    """One message is there from 1 to 4: a sum in between is 1, and one that was asked for after that is not more."""
    got = {"e": "got", "by": "c", "id": "1-1-0", "value": "v", "count": 1, "until": 9.0, "ends": 9.0, "batch": 0}
    events = [
        {"e": "try", "values": ["v"], "at": 0.0},
        {"e": "wrote", "values": ["v"], "ids": ["1-1-0"], "at": 1.0},
        {**got, "n": 0, "asked": 2.0, "at": 2.5},
        {"e": "settling", "by": "c", "n": 0, "verb": "ack", "at": 4.0},
        {"e": "settled", "by": "c", "n": 0, "ok": True, "at": 5.0},
    ]
    good = [(1, 2.0, 3.0), (1, 3.0, 4.5), (0, 3.0, 4.5), (0, 6.0, 7.0), (1, -1.0, 0.5)]
    bad = [(0, 2.0, 3.0), (2, 2.0, 3.0), (1, 6.0, 7.0)]
    for told, is_good in ((good, True), (bad, False)):
        for count, asked, at in told:
            counted = {"e": "counted", "told": count, "asked": asked, "at": at}
            assert (out_of_bounds([*events, counted]) == []) == is_good
    for asked, count in ((4.5, 0), (5.1, 1)):
        assert len(came_back(found_in([*events, {**got, "n": 1, "asked": asked, "at": 5.5}]))) == count


def _resize_shaken(url: str, name: str, wanted: int, shaking: Shaking) -> None:
    failed: list[Exception] = []

    def resize() -> None:
        try:
            with Client.from_url(url, timeout=60) as client:
                client.queue(name, create=False).resize(partitions=wanted)
        except Exception as error:  # noqa: BLE001 (the test raises it)
            failed.append(error)

    resizing = Thread(target=resize)
    resizing.start()
    try:
        shaking.shake()
    finally:
        resizing.join()
    assert failed == []


def _keys(cluster: SpareCluster) -> list[bytes]:
    return [key for each in cluster.primaries() for key in each.run("KEYS", "*")]
