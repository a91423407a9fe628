"""How a thread makes calls at several coalescers at once: alone or for others, while a node is down, too."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, cast

import pytest

from shardq.clock import SystemClock
from shardq.drivers.sharing import Sharing
from shardq.errors import BackendTimeout
from shardq.ops.queue.steps import Batch, Call, Op, Sendable, Sleep, Step, Unanswered
from shardq.ops.sharing.coalescing import CallPart, Coalescer
from shardq.ops.sharing.verb import Verb
from shardq.protocol.scripts import load

TIMEOUT, PAUSE = 0.6, 0.05


class Storing(Verb[int, int]):
    """Stores a number at a node, and tries again until its time is up."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.doubted: list[int] = []

    def bounds(self) -> tuple[int, int]:
        return 4, 1000

    def weight(self, item: int) -> int:
        return 1

    def kind(self, item: int) -> None:
        """All can share a call."""

    def attempt(self, items: Sequence[int], until: float) -> None:
        """All that is done is done by `op`."""

    def results(self, tried: Any, reply: Any) -> None:
        """Let `op` look at the reply."""

    def drop(self, tried: Any) -> None:
        """Hold nothing."""

    def op(self, items: Sequence[int], until: float, tried: Any) -> Op[list[int | Exception]]:
        while SystemClock().monotonic() < until:
            try:
                yield Call(load("write"), (self.node,), (), until=until)
            except Unanswered:
                yield Sleep(PAUSE)
            else:
                return list(items)
        return [BackendTimeout("down")] * len(items)

    def doubt(self, item: int) -> None:
        self.doubted.append(item)


class Nodes:
    """A driver, of which one node is down. It notes which nodes were called."""

    def __init__(self, down: str = "") -> None:
        self.down, self.called = down, list[str]()
        self.interrupted = False

    def owner(self, key: str) -> str:
        return key

    def perform(self, step: Step) -> Any:
        if isinstance(step, Sleep):
            return time.sleep(step.seconds)
        if self.interrupted:
            raise KeyboardInterrupt
        assert isinstance(step, Batch)
        self.called.append("".join(call.key for call in step.calls))
        return [Unanswered("down", sent=False) if call.key == self.down else "OK" for call in step.calls]

    def call(self, call: Sendable) -> Any:
        raise NotImplementedError

    def run(self, op: Op[Any]) -> Any:
        raise NotImplementedError


@pytest.fixture
def parts() -> list[CallPart]:
    return [CallPart(Coalescer(Storing(node)), at, node) for at, node in enumerate("ab")]


def run(nodes: Nodes, parts: list[CallPart]) -> list[Any]:
    clock = SystemClock()
    return Sharing(nodes, clock).run_all(parts, clock.monotonic() + TIMEOUT)


def calls(parts: list[CallPart]) -> list[int]:
    return [part.coalescer.calls for part in parts]


def test_who_is_alone_makes_all_calls_together(parts: list[CallPart]) -> None:
    nodes = Nodes()
    assert run(nodes, parts) == [0, 1]
    assert nodes.called == ["ab"]
    assert calls(parts) == [0, 0]


@pytest.mark.parametrize("busy", ["", "a", "b", "ab"])
def test_a_node_that_is_down_holds_up_no_other(parts: list[CallPart], busy: str) -> None:
    """Where a call of somebody else hangs, the thread leads another one beside it."""
    nodes = Nodes(down="a")
    for part in parts:
        if part.key in busy:
            assert part.coalescer.enter()
    failed, stored = run(nodes, parts)
    assert isinstance(failed, BackendTimeout)
    assert stored == 1
    assert nodes.called[-1] == "a"
    assert calls(parts) == [part.key in busy for part in parts]


@pytest.mark.parametrize("busy", ["", "a", "ab"])
def test_an_interrupted_thread_leaves_everywhere(parts: list[CallPart], busy: str) -> None:
    nodes = Nodes()
    nodes.interrupted = True
    for part in parts:
        if part.key in busy:
            assert part.coalescer.enter()
    with pytest.raises(KeyboardInterrupt):
        run(nodes, parts)
    assert calls(parts) == [part.key in busy for part in parts]
    if not busy:
        assert [cast("Storing", part.coalescer.verb).doubted for part in parts] == [[0], [1]]
