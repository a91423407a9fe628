"""Compare-and-swap is atomic in every form; controls, which look much the same, are not."""

from __future__ import annotations

import dis
import threading
from collections.abc import Callable
from typing import Any

import pytest

from shardq.routing.atomic import GilHead, GilNode, forms, gil_form_holds

THREADS, ADDS = 4, 20_000


class Slow(GilHead):
    """A control: a call between the comparison and the store."""

    __slots__ = ()

    def gcas(self, node: GilNode, old: Any, new: Any) -> bool:
        if node.main is not old:
            return False
        _nothing()
        node.main = new
        return True


def _nothing() -> None:
    """Somewhere to lose the GIL."""


def count_up(head: Any) -> int:
    """What THREADS threads count to, each adding ADDS times by compare-and-swap."""
    node = head.root

    def add() -> None:
        for _ in range(ADDS):
            while True:
                old = node.main
                if head.gcas(node, old, [old[0] + 1]):
                    break

    _all_at_once([add] * THREADS)
    return int(node.main[0])


def _all_at_once(tasks: list[Callable[[], None]]) -> None:
    gate = threading.Barrier(len(tasks))

    def run(task: Callable[[], None]) -> None:
        gate.wait()
        task()

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("form", forms())
def test_no_update_is_lost(form: str, restless: None) -> None:
    assert count_up(forms()[form]([0])) == THREADS * ADDS


def test_the_control_loses_updates(restless: None) -> None:
    assert any(count_up(Slow([0])) < THREADS * ADDS for _ in range(50))


@pytest.mark.parametrize("form", forms())
def test_after_a_renewal_no_older_node_changes(form: str) -> None:
    head = forms()[form]("a")
    root = head.root
    below = head.make("x", root.gen)
    assert head.gcas(below, "x", "y")
    assert not head.gcas(below, "x", "z")
    assert head.renew(root, "a", "b")
    assert not head.renew(root, "a", "c")
    assert not head.gcas(below, "y", "z")
    assert (head.root.main, head.root is root, below.main, root.main) == ("b", False, "y", "a")
    assert not head.gcas(root, "a", "d")


@pytest.mark.skipif(not gil_form_holds(), reason="the one-line form is not used on this Python")
def test_the_one_line_form_neither_calls_nor_jumps_back() -> None:
    interrupting = ("CALL", "JUMP_BACKWARD", "RESUME", "FOR_ITER", "SEND")
    for method in (GilHead.gcas, GilHead.renew):
        names = [each.opname for each in dis.get_instructions(method)]
        line = names[max(at for at, name in enumerate(names) if name == "LOAD_GLOBAL" or name == "RESUME") :]
        body = line if method is GilHead.gcas else names[names.index("IS_OP") :]
        assert [name for name in body[1:] if name.startswith(interrupting)] == []
        assert names.count("IS_OP") == 2
