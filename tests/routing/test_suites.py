"""The cases of the anchors' suites: RabbitMQ's topic exchange, NATS's sublist, the Ctries of Scala and Workiva."""

from __future__ import annotations

import random
from functools import partial

import pytest

from shardq.routing import Router, fast, nodes
from shardq.routing.ctrie import Ctrie
from shardq.routing.topic import naive_match
from tests.routing.conftest import MakeTrie
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
    pairs, empty = [(pattern, f"t{number}") for number, pattern in enumerate(BOUND, 1)], trie.census().nodes
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
        assert trie.census().nodes == empty
        check(trie, [])
        for pair in rng.sample(left, len(left)):
            assert trie.insert(*pair)
    check(trie, left)


def test_nats_hundreds_of_subscribers_at_one_pattern(trie: Ctrie) -> None:
    for pattern in ("foo", "foo.*"):
        names = [f"s{n}" for n in range(300)]
        for name in names:
            trie.insert(pattern, name)
        topic = pattern.replace("*", "x")
        for gone in (0, 149, 297):
            name = names.pop(gone)
            assert trie.remove(pattern, name)
            assert not trie.remove(pattern, name)
            assert trie.lookup(topic) == set(names)


@pytest.mark.parametrize("rollup", [True, False])
@pytest.mark.parametrize("others", [["*.b.c"], ["*.b.c", "*.b.d"], ["*.b.c.d", "*.b.#.e"]])
def test_hundreds_of_subscribers_stay_when_the_patterns_below_go(
    make_trie: MakeTrie, rollup: bool, others: list[str]
) -> None:
    trie, names = make_trie(rollup=rollup), [f"s{n}" for n in range(300)]
    empty = trie.census().nodes
    for pair in [("*.b", name) for name in names] + [(other, "q") for other in others]:
        assert trie.insert(*pair)
    for other in others:
        assert trie.remove(other, "q")
    assert trie.lookup("a.b") == set(names)
    for name in names:
        assert trie.remove("*.b", name)
    assert trie.census().nodes == empty


def test_nats_what_matches_nothing_is_one_object_and_counts_as_a_miss_once() -> None:
    router = Router()
    router.bind("foo", "q")
    assert router.match("bar") is router.match("baz") is router.match("bar")
    assert router.cache is not None
    assert (router.cache.hits, router.cache.misses) == (1, 2)
    for _ in range(3):
        router.match("foo")
    assert (router.cache.hits, router.cache.misses) == (3, 3)


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
        monkeypatch.setattr(module, "WIDE", 4)

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
