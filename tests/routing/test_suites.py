"""The cases of the anchors' suites: RabbitMQ's topic exchange, Scala's and Workiva's Ctries."""

from __future__ import annotations

import gc
import itertools
import random
from functools import partial
from typing import Any

import pytest

from benchmarks.topics.census import census
from shardq.routing import fast, nodes
from shardq.routing.atomic import GilHead
from shardq.routing.ctrie import Ctrie
from shardq.routing.prune import Cursor
from tests.routing.conftest import MakeTrie
from tests.routing.naive import naive_match
from tests.routing.test_linear import on_threads

BOUND = (
    "a.b.c", "a.*.c", "a.#.b", "a.b.b.c", "#", "#.#", "#.b", "*.*", "a.*", "*.b.c", "a.#", "a.#.#", "b.b.c", "a.b.b",
    "a.b", "b.c", "", "*.*.*", "vodka.martini", "a.b.c", "*.#", "#.*.#", "*.#.#", "#.#.#", "*", "#.b.#",
)  # fmt: skip
KEYS = (
    "a.b.c", "a.b", "a.b.b", "", "b.c.c", "a.a.a.a.a", "vodka.gin", "vodka.martini", "b.b.c", "nothing.here.at.all",
    "oneword", "a",
)  # fmt: skip


def check(trie: Ctrie, pairs: list[tuple[str, str]]) -> None:
    for key in KEYS:
        assert trie.lookup(key) == {queue for pattern, queue in pairs if naive_match(pattern, key)}


def test_rabbitmq_topic_exchange(trie: Ctrie, rng: random.Random) -> None:
    pairs, empty = [(pattern, f"t{number}") for number, pattern in enumerate(BOUND, 1)], census(trie).nodes
    for pair in pairs:
        assert trie.insert(*pair)
        assert not trie.insert(*pair)
    check(trie, pairs)
    assert trie.lookup("a.b.c") == {f"t{n}" for n in (1, 2, 5, 6, 10, 11, 12, 18, 20, 21, 22, 23, 24, 26)}
    assert trie.lookup("") == {"t5", "t6", "t17", "t24"}
    assert trie.lookup("oneword") == {f"t{n}" for n in (5, 6, 21, 22, 23, 24, 25)}
    for number in (1, 5, 11, 19, 21, 23):  # of two queues at one pattern, and of two names of one pattern, one
        assert trie.remove(*pairs[number - 1])
    left = [pair for number, pair in enumerate(pairs, 1) if number not in (1, 5, 11, 19, 21, 23)]
    check(trie, left)
    for _ in range(5):
        for pair in rng.sample(left, len(left)):
            assert trie.remove(*pair)
            assert not trie.remove(*pair)
        assert census(trie).nodes == empty
        check(trie, [])
        for pair in rng.sample(left, len(left)):
            assert trie.insert(*pair)
    check(trie, left)


@pytest.mark.parametrize("rollup", [True, False])
@pytest.mark.parametrize("others", [["*.b.c"], ["*.b.c", "*.b.d"], ["*.b.c.d", "*.b.#.e"]])
def test_hundreds_of_subscribers_stay_when_the_patterns_below_go(
    make_trie: MakeTrie, rollup: bool, others: list[str]
) -> None:
    trie, names = make_trie(rollup=rollup), [f"s{n}" for n in range(300)]
    empty = census(trie).nodes
    for pair in [("*.b", name) for name in names] + [(other, "q") for other in others]:
        assert trie.insert(*pair)
    for other in others:
        assert trie.remove(other, "q")
    assert trie.lookup("a.b") == set(names)
    for name in names:
        assert trie.remove("*.b", name)
    assert census(trie).nodes == empty


CLEANED = [".".join(words) for size in (2, 3) for words in itertools.product("a*#", repeat=size)]


def test_36_patterns_come_and_go_in_any_order_and_leave_nothing(make_trie: MakeTrie, rng: random.Random) -> None:
    trie = make_trie()
    empty = census(trie).nodes
    assert len(CLEANED) == 36
    for _ in range(15):
        there = set[str]()
        for pattern in rng.sample(CLEANED * 2, 72):  # each comes and, some time later, goes
            assert (trie.remove if pattern in there else trie.insert)(pattern, "q")
            there ^= {pattern}
            assert {pattern for pattern, _ in trie} == there
        assert census(trie).nodes == empty


@pytest.mark.parametrize(("bound", "same"), [("#.#", "#"), ("#.*", "*.#"), ("*.#", "#.*.#"), ("#", "#.#.#")])
def test_a_pattern_goes_as_it_came_though_another_means_the_same(trie: Ctrie, bound: str, same: str) -> None:
    trie.insert(bound, "q")
    assert not trie.remove(same, "q")
    assert trie.insert(same, "q")
    assert trie.remove(bound, "q")
    assert list(trie) == [(same, "q")]
    assert trie.lookup("a") == {"q"}


def test_a_key_that_another_begins_with_is_another(trie: Ctrie) -> None:
    keys = ["ab", "abc", "ab.c", "ab.c.d", "*.c", "*.c.d", "ab.#"]
    for key in keys:
        trie.insert(key, key)
    assert [sorted(trie.lookup(key)) for key in keys[:4]] == [
        ["ab", "ab.#"], ["abc"], ["*.c", "ab.#", "ab.c"], ["*.c.d", "ab.#", "ab.c.d"],
    ]  # fmt: skip
    assert trie.remove("ab.c", "ab.c")
    assert trie.remove("*.c", "*.c")
    assert trie.lookup("ab.c") == {"ab.#"}
    assert trie.lookup("ab.c.d") == {"*.c.d", "ab.#", "ab.c.d"}


def test_words_whose_hashes_begin_alike_lie_in_deep_tables(trie: Ctrie, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "WIDE_NODE", 4)
    monkeypatch.setattr(fast, "WIDE_NODE", 4)
    words = (f"w{n}" for n in itertools.count())  # Python's hashes are others in each process
    alike = list(itertools.islice((word for word in words if hash(word) & 4095 == hash("w0") & 4095), 12))
    empty = census(trie).nodes
    for word in alike:
        assert trie.insert(f"*.{word}.x", word)
        assert trie.insert("*.one", word)  # as values, too
        assert trie.insert(word, "q")
    assert census(trie).pages > 12
    assert [trie.lookup(f"a.{word}.x") for word in alike] == [{word} for word in alike]
    assert trie.lookup("a.one") == set(alike)
    assert all(trie.has_interest(topic) for word in alike for topic in (word, f"a.{word}.x"))
    for word in alike:
        assert trie.remove(f"*.{word}.x", word)
        assert trie.remove("*.one", word)
        assert trie.remove(word, "q")
    assert census(trie).nodes == empty


def test_a_compare_and_swap_that_fails_is_tried_again(rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is: no operation reports what another would have to say."""
    real, failed = GilHead.gcas, 0

    def unlucky(head: GilHead, node: Any, old: Any, new: Any) -> bool:
        nonlocal failed
        failed += 1
        return rng.random() < 0.6 and real(head, node, old, new)

    monkeypatch.setattr(GilHead, "gcas", unlucky)
    monkeypatch.setattr(nodes, "WIDE_NODE", 4)
    monkeypatch.setattr(fast, "WIDE_NODE", 4)
    trie, pairs = Ctrie(form="gil"), set[tuple[str, str]]()
    for _ in range(2500):
        pair = (".".join(rng.choices([*"ab*#", f"w{rng.randrange(9)}"], k=rng.randint(0, 4))), f"q{rng.randrange(12)}")
        if rng.random() < 0.45:
            assert trie.remove(*pair) is (pair in pairs)
            pairs.discard(pair)
        else:
            assert trie.insert(*pair) is (pair not in pairs)
            pairs.add(pair)
    assert set(trie) == pairs
    assert failed > 500


@pytest.mark.parametrize("lost", [False, True])
def test_a_node_that_is_left_with_one_pattern_goes_at_once(
    trie: Ctrie, make_trie: MakeTrie, lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when somebody else changed the node above meanwhile."""
    fresh = make_trie()
    for each in ("*.a.b", "*.a.c", "*.d", "*.e"):
        trie.insert(each, "q")
        if each != "*.a.b":
            fresh.insert(each, "q")
    real, fails = type(trie._head).gcas, [lost]

    def unlucky(head: Any, node: Any, old: Any, new: Any) -> bool:
        if not nodes.is_tomb(new) and fails.pop():
            fails.append(False)
            return False
        fails[:] = fails or [False]
        return bool(real(head, node, old, new))

    monkeypatch.setattr(type(trie._head), "gcas", unlucky)
    assert trie.remove("*.a.b", "q")
    assert census(trie) == census(fresh)
    assert set(trie) == set(fresh)


@pytest.mark.parametrize("pattern", ["*.a.b", "*.a.#"])
def test_a_pattern_that_comes_again_while_it_goes_stays(
    trie: Ctrie, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its node became a T-node, before that is dropped: by then it is gone, and what comes is another."""
    for each in ("*.a.c", "*.d", "*.e", pattern):
        trie.insert(each, "q")
    first, real = [True], type(trie._head).gcas

    def again(head: Any, node: Any, old: Any, new: Any) -> bool:
        done: bool = real(head, node, old, new)
        if nodes.is_tomb(new) and first.pop():
            first.append(False)
            assert trie.insert(pattern, "q")
        return done

    monkeypatch.setattr(type(trie._head), "gcas", again)
    assert trie.remove(pattern, "q")
    assert first == [False]
    assert set(trie) == {(each, "q") for each in ("*.a.c", "*.d", "*.e", pattern)}


def test_an_abandoned_iterator_keeps_nothing(trie: Ctrie) -> None:
    kind = type(trie._head.root)

    def nodes_alive() -> int:
        gc.collect()
        return sum(type(each) is kind for each in gc.get_objects())

    empty = nodes_alive()
    for number in range(300):
        trie.insert(f"*.k{number}.{number % 7}", "q")
    walk = iter(trie)
    seen = {next(walk) for _ in range(150)}
    for pair in list(trie):
        trie.remove(*pair)
    assert nodes_alive() > empty + 100  # what the iterator still has to see
    assert len(seen | set(walk)) == 300
    del walk
    assert nodes_alive() <= empty + 1  # the last change may still be in the stamp


def test_a_read_only_snapshot_is_read_through_t_nodes_and_writes_nothing(
    make_trie: MakeTrie, monkeypatch: pytest.MonkeyPatch
) -> None:
    trie = make_trie()
    for pattern in ("*.a.b", "*.a.c", "*.d"):
        trie.insert(pattern, "q")
    with monkeypatch.context() as patched:
        patched.setattr(Cursor, "clean", lambda _: None)  # as if the writer had come no further
        patched.setattr("shardq.routing.ctrie.remove_wild", lambda *_: False)
        assert trie.remove("*.a.b", "q")
    star = trie._head.root.main[1].main[nodes.STAR]
    below = [branch for _, branch in nodes.branches(star.main) or () if not nodes.is_leaf(branch)]
    assert [nodes.is_tomb(branch.main) for branch in below] == [True]
    snapshot = trie.snapshot()
    with monkeypatch.context() as patched:
        patched.setattr(type(trie._head), "gcas", None)
        assert [snapshot.lookup(topic) for topic in ("x.a.b", "x.a.c", "x.d")] == [set(), {"q"}, {"q"}]
        assert not snapshot.has_interest("x.a.b")
        assert set(snapshot) == {("*.a.c", "q"), ("*.d", "q")}
    assert trie.insert("*.a.e", "q")  # cleans, and is not lost
    assert set(trie) == {("*.a.c", "q"), ("*.a.e", "q"), ("*.d", "q")}


def test_all_is_there_after_inserts_beside_lookups_and_snapshots(make_trie: MakeTrie, restless: None) -> None:
    trie, keys = make_trie(), [f"{'*.' if n % 3 == 0 else ''}k{n}" for n in range(1500)]

    def insert() -> None:
        assert all(trie.insert(key, "q") for key in keys)

    def look() -> None:
        for key in keys:
            assert trie.lookup(key.replace("*", "x")) <= {"q"}

    def snap() -> None:
        for number in range(600):
            trie.snapshot(readonly=number % 2 == 0)

    on_threads([insert, look, snap])
    assert len(trie) == len(trie.snapshot()) == len(keys)
    assert all(trie.lookup(key.replace("*", "x")) == {"q"} for key in keys)


def test_ten_thousand_in_half_of_them_out_and_in_again(trie: Ctrie) -> None:
    keys = [f"{'*.' if n % 7 == 0 else ''}k{n}.x{n % 5}" for n in range(10_000)]
    for some in (keys, keys[::2]):
        for key in some:
            assert trie.insert(key, "q")
        for key in keys[::2]:
            assert trie.remove(key, "q")
    for key in keys[::2]:
        assert trie.insert(key, "q")
    assert {pattern for pattern, _ in trie} == set(keys)
    assert all(trie.lookup(key.replace("*", "any")) == {"q"} for key in keys)


def test_a_trie_and_its_snapshot_are_emptied_at_once_each_by_its_thread(make_trie: MakeTrie, restless: None) -> None:
    trie, keys = make_trie(), [f"{'*.' if n % 3 == 0 else ''}k{n}" for n in range(600)]
    for key in keys:
        trie.insert(key, "q")
    copy = trie.snapshot(readonly=False)
    deeper = copy.snapshot(readonly=False)

    def empty(mine: Ctrie, order: list[str]) -> None:
        for at, key in enumerate(order):
            assert mine.remove(key, "q")
            assert mine.lookup(key.replace("*", "any")) == set()
            if at % 150 == 0:
                assert len(mine) == len(order) - at - 1

    on_threads(
        [lambda: empty(trie, keys), lambda: empty(copy, keys[::-1]), lambda: empty(deeper, keys[::2] + keys[1::2])]
    )
    assert list(trie) == list(copy) == list(deeper) == []


def test_of_threads_that_insert_the_same_one_succeeds(make_trie: MakeTrie, restless: None) -> None:
    trie, wins = make_trie(), list[str]()
    keys = [f"{'*.' if n % 2 else ''}k{n % 40}.x{n}" for n in range(200)]

    def insert() -> None:
        wins.extend(key for key in keys if trie.insert(key, "q"))

    def remove() -> None:
        wins.extend(key for key in keys if trie.remove(key, "q"))

    for act in (insert, remove):
        on_threads([act] * 5)
        assert sorted(wins) == sorted(keys)
        wins.clear()


def test_tables_that_grow_and_shrink_under_many_writers(
    make_trie: MakeTrie, rng: random.Random, restless: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each writer sees its own pairs as if it were alone, and nothing is left in the end."""
    for module in (nodes, fast):
        monkeypatch.setattr(module, "WIDE_NODE", 4)

    def churn(trie: Ctrie, name: str, dice: random.Random) -> None:
        mine = set[tuple[str, str]]()
        for _ in range(120):
            words = [dice.choice(["*.", "#.", "", "a.", "*.a."]), "w", str(dice.randrange(30))]
            pair = ("".join([*words, dice.choice(["", ".*", ".#", ".x", ".*.y"])]), f"{name}{dice.randrange(3)}")
            if mine and dice.random() < 0.5:
                pair = dice.choice(sorted(mine))
                mine.discard(pair)
                assert trie.remove(*pair)
            else:
                assert trie.insert(*pair) is (pair not in mine)
                mine.add(pair)
            topic = f"{dice.choice('az')}.w{dice.randrange(30)}{dice.choice(['', '.x', '.x.y'])}"
            found = {value for value in trie.lookup(topic) if value.startswith(name)}
            assert found == {value for pattern, value in mine if naive_match(pattern, topic)}
            if dice.random() < 0.05:
                trie.snapshot()
        for pair in dice.sample(sorted(mine), len(mine)):
            assert trie.remove(*pair)

    for _ in range(4):
        trie, dices = make_trie(), {name: random.Random(rng.random()) for name in "pqrst"}
        on_threads([partial(churn, trie, name, dice) for name, dice in dices.items()])
        assert list(trie) == []
