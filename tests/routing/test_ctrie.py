"""The trie, by one thread: the suites of the anchors, and everything against the naive matcher."""

from __future__ import annotations

import itertools
import random
import time

import pytest
from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from benchmarks.topics.census import census
from shardq.errors import ConfigError
from shardq.routing import nodes
from shardq.routing.ctrie import Ctrie
from tests.routing.conftest import MakeTrie
from tests.routing.naive import naive_match

Pairs = set[tuple[str, str]]


def expected(pairs: Pairs, topic: str) -> set[str]:
    return {value for pattern, value in pairs if naive_match(pattern, topic)}


def test_insert_and_remove_say_whether_they_changed_anything(trie: Ctrie) -> None:
    assert trie.lookup("a.b") == set()
    assert [trie.insert("a.*", "q"), trie.insert("a.*", "q"), trie.insert("a.*", "r")] == [True, False, True]
    assert trie.lookup("a.b") == {"q", "r"}
    assert [trie.remove("a.b", "q"), trie.remove("a.*", "x"), trie.remove("a.*", "q")] == [False, False, True]
    assert [trie.remove("a.*", "q"), trie.remove("a.*", "r"), trie.lookup("a.b")] == [False, True, frozenset()]


def test_six_patterns_over_two_subscribers(trie: Ctrie) -> None:
    pairs = {
        ("forex.*", "one"),
        ("*.usd", "one"),
        ("forex.eur", "one"),
        ("*.eur", "two"),
        ("forex.*", "two"),
        ("*", "one"),
    }
    for pair in pairs:
        trie.insert(*pair)
    for topic in ("forex.eur", "forex.usd", "trade.usd", "trade", "forex", "trade.eur", "a.b.c"):
        assert trie.lookup(topic) == expected(pairs, topic)
    for pair in pairs:
        assert trie.remove(*pair)
    assert trie.lookup("forex.eur") == set()


def test_a_node_with_values_and_branches_keeps_the_one_when_the_other_goes(trie: Ctrie) -> None:
    trie.insert("*.b", "up")
    trie.insert("*.b.c", "down")
    trie.remove("*.b", "up")
    assert trie.lookup("a.b") == set()
    assert trie.lookup("a.b.c") == {"down"}
    trie.insert("*.b", "up")
    trie.remove("*.b.c", "down")
    assert trie.lookup("a.b") == {"up"}
    assert trie.lookup("a.b.c") == set()


def test_a_result_that_was_handed_out_never_changes(trie: Ctrie) -> None:
    trie.insert("a.*", "q")
    before = trie.lookup("a.b")
    trie.insert("a.*", "r")
    assert before == {"q"}


@pytest.mark.runs_in("test-all")
def test_all_patterns_of_three_words_and_topics_of_four() -> None:
    """With empty words, and with wildcards in topics, which are plain words there."""
    patterns = sorted({".".join(w) for n in range(4) for w in itertools.product(["a", "b", "", "*", "#"], repeat=n)})
    topics = sorted({".".join(w) for n in range(5) for w in itertools.product(["a", "b", "", "*", "#"], repeat=n)})
    trie, shuffled = Ctrie(), random.Random(5).sample(patterns, len(patterns))
    for pattern in shuffled:
        trie.insert(pattern, pattern)
    known = {topic: {pattern for pattern in patterns if naive_match(pattern, topic)} for topic in topics}
    for removed in (set(), set(shuffled[::2])):
        for pattern in removed:
            trie.remove(pattern, pattern)
        for topic in topics:
            assert trie.lookup(topic) == known[topic] - removed


@pytest.mark.parametrize("rollup", [True, False])
def test_random_changes_agree_with_the_oracle_and_leave_nothing(
    make_trie: MakeTrie, rollup: bool, rng: random.Random
) -> None:
    for _ in range(10):
        trie, pairs, snapshots = make_trie(rollup=rollup), set[tuple[str, str]](), []
        empty = census(trie).nodes
        for step in range(250):
            pattern = ".".join(rng.choices("abc*#", k=rng.randint(0, 6)))
            value = f"q{rng.randrange(14)}"
            if pairs and rng.random() < 0.4:
                pattern, value = rng.choice(sorted(pairs))
                assert trie.remove(pattern, value)
                pairs.discard((pattern, value))
            else:
                assert trie.insert(pattern, value) is ((pattern, value) not in pairs)
                pairs.add((pattern, value))
            topic = ".".join(rng.choices("abcd", k=rng.randint(0, 6)))
            assert trie.lookup(topic) == expected(pairs, topic)
            if step % 50 == 0:
                snapshots.append((trie.snapshot(), set(pairs)))
        assert all(set(snapshot) == then for snapshot, then in snapshots)
        for pair in rng.sample(sorted(pairs), len(pairs)):
            assert trie.remove(*pair)
        assert census(trie).nodes == empty


@pytest.mark.parametrize("rollup", [True, False])
def test_what_is_left_after_removals_has_no_more_nodes_than_if_it_had_been_all(
    make_trie: MakeTrie, rollup: bool, rng: random.Random
) -> None:
    for _ in range(100):
        words = rng.choice(["aab*", "abcd*"]) + ("" if rollup else "#")
        pairs = [(".".join(rng.choices(words, k=rng.randint(1, 4))), "q") for _ in range(rng.randint(2, 9))]
        trie = make_trie(rollup=rollup)
        pairs = [pair for pair in pairs if trie.insert(*pair)]
        while pairs:
            assert trie.remove(*pairs.pop(rng.randrange(len(pairs))))
            fresh = make_trie(rollup=rollup)
            for pair in pairs:
                fresh.insert(*pair)
            left, least = census(trie), census(fresh)
            assert left == least or (rollup and left.nodes <= least.nodes and left.dense <= least.dense), pairs


def test_a_node_that_is_only_on_the_way_to_a_leaf_goes_with_the_one_below(trie: Ctrie, make_trie: MakeTrie) -> None:
    fresh = make_trie()
    for each in (trie, fresh):
        each.insert("a.#", "q")
    trie.insert("a.#.b", "q")
    assert trie.remove("a.#.b", "q")
    assert census(trie) == census(fresh)


def test_wide_levels_and_wide_value_sets_split_and_come_back(
    make_trie: MakeTrie, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardq.routing.nodes.WIDE_NODE", 5)
    trie, pairs = make_trie(), set[tuple[str, str]]()
    empty = census(trie).nodes
    for _ in range(1500):
        if pairs and rng.random() < 0.45:
            pair = rng.choice(sorted(pairs))
            assert trie.remove(*pair)
            pairs.discard(pair)
            continue
        pattern = rng.choice(["*.", "#.", "", "a."]) + f"w{rng.randrange(25)}" + rng.choice(["", ".*", ".#", ".x"])
        value = f"q{rng.randrange(rng.choice([2, 40]))}"
        assert trie.insert(pattern, value) is ((pattern, value) not in pairs)
        pairs.add((pattern, value))
    topics = [f"{first}w{n}{last}" for first in ("", "a.", "z.") for n in range(25) for last in ("", ".x", ".y")]
    assert all(trie.lookup(topic) == expected(pairs, topic) for topic in topics)
    assert set(trie) == pairs
    for pair in rng.sample(sorted(pairs), len(pairs)):
        assert trie.remove(*pair)
    assert census(trie).nodes == empty


class Colliding(str):
    """Text whose hash is that of all others."""

    __slots__ = ()

    def __hash__(self) -> int:
        return 77


@pytest.mark.parametrize("count", [10, 1500])
def test_keys_that_all_collide(count: int) -> None:
    trie, keys = Ctrie(), [Colliding(f"k{n}") for n in range(count)]
    empty = census(trie).nodes
    assert all(trie.insert(key, "q") for key in keys)
    assert not trie.insert(keys[3], "q")
    assert trie.lookup(keys[-1]) == {"q"}
    assert trie.lookup(Colliding("other")) == set()
    assert all(trie.remove(key, "q") for key in keys[1:])
    assert list(trie) == [("k0", "q")]
    trie.remove(keys[0], "q")
    assert census(trie).nodes == empty


def test_single_branches_are_rolled_up_and_split_on_demand() -> None:
    trie, plain = Ctrie(), Ctrie(rollup=False)
    for each in (trie, plain):
        each.insert("*.b.c.d.e", "q")
    assert (census(trie).cnodes, census(plain).cnodes) == (1, 5)
    trie.insert("*.b.c.x.y", "r")  # they share a run of two words
    assert census(trie).cnodes == 2
    trie.insert("*.b.z", "s")
    assert census(trie).cnodes == 3
    for topic, values in (("a.b.c.d.e", "q"), ("a.b.c.x.y", "r"), ("a.b.z", "s"), ("a.b.c", "")):
        assert trie.lookup(topic) == set(values)
    trie.remove("*.b.z", "s")
    assert census(trie).cnodes == 2  # the run is whole again
    trie.remove("*.b.c.x.y", "r")
    assert census(trie).cnodes == 1


def test_sparse_dense_and_wide_nodes() -> None:
    trie = Ctrie()
    kinds = []
    for number in range(nodes.WIDE_NODE + 1):
        trie.insert(f"#.w{number}.*", "q")
        found = census(trie)
        kinds.append((found.sparse, found.dense, found.pages > nodes.LAST_SLOTS // 2))
    assert kinds[0] == (0, 0, False)  # rolled up: one leaf
    assert set(kinds[1 : nodes.SPARSE_NODE]) == {(1, 0, False)}
    assert set(kinds[nodes.SPARSE_NODE : -1]) == {(0, 1, False)}
    assert kinds[-1] == (0, 0, True)
    assert trie.lookup("a.w7.x") == {"q"}


def test_iteration_is_over_a_snapshot_and_clear_leaves_snapshots(trie: Ctrie) -> None:
    pairs = {(f"k{n}.*", "q") for n in range(100)} | {(f"k{n}", "q") for n in range(100)}
    for pair in pairs:
        trie.insert(*pair)
    walk, snapshot = iter(trie), trie.snapshot()
    first = next(walk)
    trie.clear()
    assert (set(walk) | {first}, len(snapshot), len(trie), list(trie)) == (pairs, 200, 0, [])
    trie.clear()
    assert trie.insert("a", "q")
    assert trie.lookup("a") == {"q"}


def test_a_writable_snapshot_and_the_trie_go_their_own_ways(trie: Ctrie) -> None:
    for number in range(300):
        trie.insert(f"*.k{number}", "q")
    copy = trie.snapshot(readonly=False)
    second = copy.snapshot(readonly=False)
    for number in range(300):
        copy.remove(f"*.k{number}", "q")
        trie.insert(f"*.k{number}", "r")
    assert (len(copy), len(trie), len(second)) == (0, 600, 300)
    assert copy.lookup("a.k7") == set()
    assert trie.lookup("a.k7") == {"q", "r"}
    assert second.lookup("a.k7") == {"q"}


def test_a_read_only_snapshot_refuses_writes(trie: Ctrie) -> None:
    snapshot = trie.snapshot()
    for write in (snapshot.insert, snapshot.remove):
        with pytest.raises(TypeError, match="read-only"):
            write("a", "q")
    with pytest.raises(TypeError, match="read-only"):
        snapshot.clear()
    assert snapshot.snapshot(readonly=False).readonly


def test_many_wildcards_do_not_make_a_lookup_long() -> None:
    trie = Ctrie()
    for count in (4, 8, 10, 60):
        trie.insert("#." * count + "end", "q")
    started = time.process_time()
    assert trie.lookup(".".join(["x"] * 120)) == set()
    assert trie.lookup(".".join(["x"] * 119 + ["end"])) == {"q"}
    assert time.process_time() - started < 5  # walking each way by itself would take years


@pytest.mark.parametrize("rollup", [True, False])
def test_thousands_of_words_and_hundreds_of_wildcards(make_trie: MakeTrie, rollup: bool) -> None:
    trie, long = make_trie(rollup=rollup), ["w"] * (10_000 if rollup else 2000)
    empty = census(trie).nodes
    wide = [".".join("*" * len(long)), ".".join([*long[:-1], "#"]), ".".join([*long[:-1], "*", "#"]), "#.w.#"]
    many = ["#." * 200 + "a", "#." * 200 + "b", "#." * 1500 + "c"]
    started = time.process_time()
    for pattern in wide:
        assert trie.insert(pattern, pattern[-20:])
    assert trie.lookup(".".join(long)) == {each[-20:] for each in wide}
    for pattern in many:
        assert trie.insert(pattern, pattern[-20:])
    assert trie.lookup(".".join([*long[:60], "b"])) == {many[1][-20:], "#.w.#"}
    assert set(trie) == {(each, each[-20:]) for each in wide + many}
    for pattern in wide + many:
        assert trie.remove(pattern, pattern[-20:])
    assert census(trie).nodes == empty
    assert time.process_time() - started < 20


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(ConfigError, match="there are"):
        Ctrie(form="magic")


class Against(RuleBasedStateMachine):
    """The trie, its snapshots, and sets of pairs."""

    patterns = strategies.lists(strategies.sampled_from("ab*#"), max_size=5).map(".".join)
    values = strategies.sampled_from([f"q{n}" for n in range(12)])

    def __init__(self) -> None:
        super().__init__()
        self.trie, self.pairs = Ctrie(), set[tuple[str, str]]()
        self.other, self.others = self.trie.snapshot(readonly=False), set[tuple[str, str]]()

    @rule(pattern=patterns, value=values)
    def insert(self, pattern: str, value: str) -> None:
        assert self.trie.insert(pattern, value) is ((pattern, value) not in self.pairs)
        self.pairs.add((pattern, value))

    @rule(pattern=patterns, value=values)
    def remove(self, pattern: str, value: str) -> None:
        assert self.trie.remove(pattern, value) is ((pattern, value) in self.pairs)
        self.pairs.discard((pattern, value))

    @rule(topic=strategies.lists(strategies.sampled_from("abc"), max_size=5).map(".".join))
    def lookup(self, topic: str) -> None:
        assert self.trie.lookup(topic) == expected(self.pairs, topic)
        assert self.other.lookup(topic) == expected(self.others, topic)

    @rule()
    def swap(self) -> None:
        self.trie, self.pairs, self.other, self.others = self.other, self.others, self.trie, self.pairs

    @rule()
    def fork(self) -> None:
        self.other, self.others = self.trie.snapshot(readonly=False), set(self.pairs)

    @invariant()
    def both_hold_what_they_should(self) -> None:
        assert set(self.trie) == self.pairs
        assert set(self.other) == self.others


TestAgainst = Against.TestCase
TestAgainst.settings = settings(max_examples=60, stateful_step_count=40)
