"""Compare-and-swap is atomic in every form; controls, which look much the same, are not."""

from __future__ import annotations

import dis
import linecache
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from shardq.errors import ConfigError
from shardq.routing.atomic import GilHead, INode, LockHead, form_of, forms, gil_form_holds
from shardq.routing.ctrie import Ctrie

THREADS, ADDS = 4, 20_000


class Slow(GilHead):
    """A control: a call between the comparison and the store."""

    __slots__ = ()

    def gcas(self, node: INode, old: Any, new: Any) -> bool:
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
    assert not head.renew(root, "z", "b")
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


def test_without_the_gil_the_form_is_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert (list(forms()), form_of(None)) == (["lock"], LockHead)
    with pytest.raises(ConfigError, match="'gil' on this Python; there are: lock"):
        form_of("gil")


@pytest.mark.parametrize("line", ["self.stamp = new", "node.main = new"])
def test_a_lookup_does_not_wait_for_a_writer_that_holds_the_lock(line: str) -> None:
    """The writer stops before one of its two stores: lookups still see the state before the write."""
    trie, reached, go = Ctrie(form="lock"), threading.Event(), threading.Event()
    trie.insert("a.*", "first")

    def stop_at_line(frame: Any, event: str, arg: object) -> Any:
        if event == "line" and linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip() == line:
            reached.set()
            assert go.wait(20)
        return stop_at_line

    def write() -> None:
        sys.settrace(stop_at_line)
        trie.insert("a.*", "second")

    writer = threading.Thread(target=write)
    writer.start()
    assert reached.wait(20)
    found = [trie.lookup("a.b") for _ in range(3)]
    go.set()
    writer.join()
    assert found == [{"first"}] * 3
    assert trie.lookup("a.b") == {"first", "second"}
