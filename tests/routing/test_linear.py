"""Concurrent operations behave as if each happened at one instant: histories from threads, searched for an order."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from benchmarks.topics.census import census
from shardq.routing import Router, lookup
from shardq.routing.atomic import forms
from shardq.routing.contents import page_get
from shardq.routing.ctrie import Ctrie
from shardq.routing.lookup import freeze
from tests.routing.conftest import FORMS, MakeTrie
from tests.routing.linear import Done, Recorder, linearizable

PATTERNS = ("a.b", "a.*", "*.b", "#", "a.#", "a.b.c", "*.b.c", "#.c", "*.b.d.e")
TOPICS = ("a.b", "a.b.c", "b", "x.b.d.e")
ROUNDS = 250


def script(rng: random.Random, length: int) -> list[tuple[str, tuple[str, ...]]]:
    def one() -> tuple[str, tuple[str, ...]]:
        verb = rng.choice(["insert", "insert", "remove", "remove", "lookup", "lookup", "has_interest", "snapshot"])
        if verb in ("lookup", "has_interest"):
            return verb, (rng.choice(TOPICS),)
        return (verb, ()) if verb == "snapshot" else (verb, (rng.choice(PATTERNS), rng.choice("qr")))

    return [one() for _ in range(length)]


def performer(trie: Ctrie) -> Recorder:
    def perform(verb: str, args: tuple[str, ...]) -> Any:
        return frozenset(trie.snapshot()) if verb == "snapshot" else getattr(trie, verb)(*args)

    return Recorder(perform)


def preempted(rng: random.Random) -> Any:
    """A trace that gives the GIL away after some lines, between any two steps of an operation."""
    lock = threading.Event()

    def trace(frame: Any, event: str, arg: object) -> Any:
        if "routing" not in frame.f_code.co_filename:
            return None
        if rng.random() < 0.05:
            lock.wait(1e-6)
        return trace

    return trace


def histories(rng: random.Random, make: Any, rounds: int) -> bool:
    """Whether all of *rounds* histories of three threads are linearizable."""
    threading.settrace(preempted(rng))
    try:
        return all(linearizable(performer(make()).run([script(rng, 5) for _ in range(3)])) for _ in range(rounds))
    finally:
        threading.settrace(None)


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("form", FORMS)
def test_histories_of_the_trie_are_linearizable(form: str, rng: random.Random, restless: None) -> None:
    assert histories(rng, lambda: Ctrie(form=form), ROUNDS if form == FORMS[0] else ROUNDS // 3)


@pytest.mark.runs_in("test-all")
def test_histories_of_the_router_with_its_cache_are_linearizable(rng: random.Random, restless: None) -> None:
    def perform(router: Router, verb: str, args: tuple[str, ...]) -> Any:
        if verb == "snapshot":
            return frozenset(router.bindings())
        return getattr(router, {"insert": "bind", "remove": "unbind", "lookup": "match"}.get(verb, verb))(*args)

    threading.settrace(preempted(rng))
    try:
        for _ in range(ROUNDS):
            router = Router(cache=4)
            scripts = [script(rng, 5) for _ in range(3)]
            history = Recorder(lambda verb, args, router=router: perform(router, verb, args)).run(scripts)  # type: ignore[misc]
            assert linearizable(history), history
    finally:
        threading.settrace(None)


def impossible(rng: random.Random, trie: Ctrie, lookups: int) -> int:
    """How many of *lookups* found what was never there: the second binding without the first."""
    stop, found = threading.Event(), list[frozenset[str]]()

    def write() -> None:
        while not stop.is_set():
            for act in (trie.insert, trie.remove):
                for pair in (("a.b", "first"), ("#", "second"))[:: 1 if act == trie.insert else -1]:
                    assert act(*pair)

    def read() -> None:
        try:
            found.extend(trie.lookup("a.b") for _ in range(lookups))
        finally:
            stop.set()

    threading.settrace(preempted(rng))
    try:
        on_threads([write, read])
    finally:
        threading.settrace(None)
    assert len(set(found)) > 1
    return found.count(frozenset({"second"}))


def test_a_lookup_sees_one_instant_of_several_nodes(make_trie: MakeTrie, rng: random.Random, restless: None) -> None:
    assert impossible(rng, make_trie(), 1500) == 0


def test_interest_is_of_one_instant_of_several_nodes(make_trie: MakeTrie, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two bindings is always there: the other one comes, and it goes, between the looks at their two nodes."""
    trie, looks = make_trie(), 0
    trie.insert("#", "q")

    def moving(page: Any, key: str) -> Any:
        nonlocal looks
        looks += 1
        held = page_get(page, key)
        come, go = ("a.b", "#") if held is None else ("#", "a.b")
        if trie.lookup("a.b") and trie.insert(come, "q"):
            assert trie.remove(go, "q")
        return held

    monkeypatch.setattr(lookup, "page_get", moving)
    assert trie.has_interest("a.b")
    assert looks == lookup.MAX_TRIES + 1  # the last in a snapshot


@pytest.mark.parametrize("form", FORMS)
def test_a_lookup_that_sees_no_stamp_change_is_found_out(
    form: str, rng: random.Random, restless: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unstamped(self: Any, node: Any, old: Any, new: Any) -> bool:
        done = False
        if node.main is old and self.root.gen is node.gen: node.main = new; done = True  # fmt: skip # noqa: E701, E702
        return done

    monkeypatch.setattr(forms()[form], "gcas", unstamped)
    assert any(impossible(rng, Ctrie(form=form), 1000) for _ in range(30))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tries", [0, 1])
def test_lookups_that_are_disturbed_often_are_done_in_a_snapshot(
    form: str, tries: int, rng: random.Random, restless: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = 0

    def counted(head: Any) -> Any:
        nonlocal taken
        taken += 1
        return freeze(head)

    monkeypatch.setattr(lookup, "MAX_TRIES", tries)
    monkeypatch.setattr(lookup, "freeze", counted)
    assert histories(rng, lambda: Ctrie(form=form), ROUNDS // 5)
    assert impossible(rng, Ctrie(form=form), 300) == 0
    assert taken > 0


def test_the_search_tells_right_from_wrong() -> None:
    insert = Done("insert", ("#", "q"), True, 0, 3)
    seen, unseen = Done("lookup", ("a",), frozenset("q"), 1, 2), Done("lookup", ("a",), frozenset(), 4, 5)
    assert linearizable([insert, seen])
    assert not linearizable([insert, unseen])  # it had returned
    early = Done("lookup", ("a",), frozenset("q"), 0, 1)
    late = Done("lookup", ("a",), frozenset(), 2, 4)
    assert not linearizable([Done("insert", ("#", "q"), True, 0, 5), early, late])  # seen, and then not


def on_threads(tasks: list[Any]) -> None:
    errors: list[BaseException] = []

    def run(task: Any) -> None:
        try:
            task()
        except BaseException as error:  # noqa: BLE001 - handed to the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_disjoint_writers_all_succeed_and_all_is_gone_again(make_trie: MakeTrie, restless: None) -> None:
    trie = make_trie()
    empty, names = (
        census(trie).nodes,
        [[f"{kind}k{t}x{n}" for n in range(150) for kind in ("", "*.")] for t in range(6)],
    )

    def insert(mine: list[str]) -> None:
        assert all(trie.insert(name, "q") for name in mine)

    def remove(mine: list[str]) -> None:
        assert all(trie.remove(name, "q") for name in mine)

    def watch() -> None:
        sizes = [len(trie.snapshot()) for _ in range(15)]
        assert sizes == sorted(sizes)

    on_threads([*[lambda mine=mine: insert(mine) for mine in names], watch])
    assert set(trie) == {(name, "q") for mine in names for name in mine}
    on_threads([lambda mine=mine: remove(mine) for mine in names])
    assert (list(trie), census(trie).values) == ([], 0)
    trie.insert("*.last", "q")
    trie.remove("*.last", "q")
    assert census(trie).nodes <= empty + 40  # T-nodes that nobody came by any more


def test_snapshots_stand_still_while_writers_go_on(make_trie: MakeTrie, restless: None) -> None:
    trie = make_trie()
    stop = threading.Event()

    def churn(number: int) -> None:
        while not stop.is_set():
            for pattern in (f"*.a{number}", f"a{number}", f"*.a{number}.#.b"):
                assert trie.insert(pattern, "q")
                assert trie.lookup(pattern.replace("*", "x").replace("#", "y"))
                assert trie.remove(pattern, "q")

    def look() -> None:
        try:
            for _ in range(60):
                snapshot, copy = trie.snapshot(), trie.snapshot(readonly=False)
                assert len({frozenset(snapshot) for _ in range(4)}) == 1
                for pair in list(copy):
                    assert copy.remove(*pair)
                assert list(copy) == []
        finally:
            stop.set()

    on_threads([look, *[lambda n=n: churn(n) for n in range(4)]])
    assert list(trie) == []
