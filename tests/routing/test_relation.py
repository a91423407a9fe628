"""Which patterns cover and overlap which, against all topics; and the bindings that a pattern catches."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterable, Iterator

import pytest

from shardq.errors import PatternError
from shardq.routing import Binding, Ctrie, Router, covers, overlaps
from shardq.routing.relation import Covering, Overlapping
from tests.routing.conftest import MakeTrie
from tests.routing.naive import naive_match


def texts(words: str, longest: int) -> list[str]:
    return [".".join(each) for size in range(longest + 1) for each in itertools.product(words, repeat=size)]


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize(("words", "longest", "topic_words", "longest_topic"), [("ab", 3, "abx", 6), ("a", 4, "ax", 8)])
def test_small_patterns_cover_and_overlap_as_the_topics_say(
    words: str, longest: int, topic_words: str, longest_topic: int
) -> None:
    patterns, topics = texts(words + "*#", longest), texts(topic_words, longest_topic)
    matched = {p: sum(1 << n for n, topic in enumerate(topics) if naive_match(p, topic)) for p in patterns}
    for pattern, other in itertools.product(patterns, repeat=2):
        assert covers(pattern, other) is (not matched[other] & ~matched[pattern]), (pattern, other)
        assert overlaps(pattern, other) is bool(matched[pattern] & matched[other]), (pattern, other)


def examples(pattern: str, longest: int) -> Iterator[str]:
    """Topics that *pattern* matches, hardest to match: its wildcards are words found nowhere else, up to *longest*."""
    words: Iterable[str] = filter(None, pattern.split("."))
    many = [("x",) * n for n in range(longest + 1)]
    choices = [many if word == "#" else [("x" if word == "*" else word,)] for word in words]
    return (".".join(itertools.chain(*each)) for each in itertools.product(*choices))


@pytest.mark.runs_in("test-all")
def test_long_patterns_cover_what_their_hardest_topics_say(rng: random.Random) -> None:
    seen = {True: 0, False: 0}
    for _ in range(4000):
        other = rng.choices("aab*#", k=rng.randint(3, 7))
        if other.count("#") > 2:
            continue
        pattern = [word for word in other if rng.random() < 0.9]  # a looser relative, or nearly one
        for at in range(len(pattern)):
            pattern[at : at + 1] = rng.choice([[pattern[at]]] * 3 + [["*"], ["#"], ["#", "*"], ["*", "#"]])
        text, wanted = ".".join(other), ".".join(pattern)
        expected = all(naive_match(wanted, topic) for topic in examples(text, len(pattern) + 1))
        assert covers(wanted, text) is expected, (wanted, text)
        seen[expected] += 1
    assert min(seen.values()) > 200


@pytest.mark.parametrize(
    ("pattern", "covered", "only_overlapping", "apart"),
    [
        ("", [""], ["#"], ["*", "a"]),
        ("#", ["", "#", "*", "a.*.#.b", "#.#"], [], []),
        ("a.*", ["a.b", "a.*"], ["*.b", "#", "a.#", "#.b"], ["a", "b.*", "a.*.*"]),
        ("a.#", ["a", "a.b.*.#", "a.#.#"], ["*", "#.b", "*.*"], ["", "b.#"]),
        ("*.#", ["#.*", "*.*", "a", "#.a.#"], ["#", "#.#"], [""]),
        ("a.*.#.b", ["a.x.b", "a.#.*.b", "a.x.#.y.b"], ["a.#.b", "a.*.*", "*.#"], ["a.b", "a.#.c"]),
        ("foo.*.bar", ["foo.x.bar"], ["foo.#", "*.*.*", "#.bar"], ["foo.bar", "foo.*.baz"]),
    ],
)
def test_a_pattern_and_others(pattern: str, covered: list[str], only_overlapping: list[str], apart: list[str]) -> None:
    for other in covered + only_overlapping + apart:
        assert covers(pattern, other) is (other in covered)
        assert overlaps(pattern, other) is overlaps(other, pattern) is (other not in apart)


@pytest.mark.parametrize("bad", ["a..b", "a*", "a b", None, b"a"])
def test_what_is_no_pattern_is_refused(bad: str) -> None:
    router = Router()
    for act in (covers, overlaps, lambda one, _: router.covered_by(one), lambda _, two: router.overlapping(two)):
        for pair in ((bad, bad), ("a", bad), (bad, "a")):
            if act in (covers, overlaps) or pair[0] is pair[1]:
                with pytest.raises(PatternError):
                    act(*pair)


def test_many_wildcards_take_no_more_steps_than_words() -> None:
    started = time.process_time()
    for one, two in itertools.product(["#.a." * 63 + "b", "*.#." * 63 + "a", "#.a." * 63 + "a"], repeat=2):
        assert covers(one, two) is (one == two or (one[0], two[-1]) == ("*", "a"))
        assert overlaps(one, two) is (one[-1] == two[-1])
    assert time.process_time() - started < 20  # walking each way by itself would take years


def some_trie(trie: Ctrie, rng: random.Random) -> set[tuple[str, str]]:
    """Fill *trie*; what is in it."""
    pairs = set[tuple[str, str]]()
    for _ in range(400):
        pattern = ".".join(rng.choices([*"abc*#", f"w{rng.randrange(12)}"], k=rng.randint(0, 5)))
        pairs.add((pattern, f"q{rng.randrange(rng.choice([3, 30]))}"))
    for pair in pairs | {("a.*", f"q{n}") for n in range(20)} | {("c.a", f"q{n}") for n in range(20)}:
        pairs.add(pair)
        trie.insert(*pair)
    return pairs


@pytest.mark.parametrize("rollup", [True, False])
def test_a_trie_finds_what_a_pattern_covers_and_overlaps(
    make_trie: MakeTrie, rollup: bool, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardq.routing.nodes.WIDE_NODE", 5)
    trie = make_trie(rollup=rollup)
    pairs = some_trie(trie, rng)
    asked = ["", "#", "*.#", "a.#", "#.w3", "c.a", "a.*"]
    asked += [".".join(rng.choices([*"abc*#", f"w{rng.randrange(12)}"], k=rng.randint(1, 5))) for _ in range(60)]
    for pattern in asked:
        found = list(trie.related(Covering(pattern)))
        assert sorted(found) == sorted(each for each in pairs if covers(pattern, each[0]))
        found = list(trie.related(Overlapping(pattern)))
        assert sorted(found) == sorted(each for each in pairs if overlaps(pattern, each[0]))


@pytest.mark.parametrize("rollup", [True, False])
def test_there_is_interest_in_a_topic_if_and_only_if_something_matches_it(
    make_trie: MakeTrie, rollup: bool, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardq.routing.nodes.WIDE_NODE", 5)
    seen = {True: 0, False: 0}
    for number in range(100):
        if number >= 8 and min(seen.values()) > 60:  # in 1 of 100 seeds, eight tries do not have as many of both
            break
        trie, pairs = make_trie(rollup=rollup), sorted(some_trie(Ctrie(), rng))
        for pair in rng.sample(pairs, 30):
            trie.insert(*(pair[0].lstrip("#."), pair[1]))
        for _ in range(60):
            topic = ".".join(rng.choices([*"abcd", f"w{rng.randrange(12)}"], k=rng.randint(0, 6)))
            found = trie.has_interest(topic)
            assert found is bool(trie.lookup(topic))
            seen[found] += 1
    assert min(seen.values()) > 60


def test_there_is_interest_by_runs_of_words_and_by_many_values(make_trie: MakeTrie) -> None:
    for pattern, more in (("a.b", "a.c"), ("*.b", "*.b.c"), ("*.a.b.c.d", "*.a.b.c.e"), ("#.a.b", "#.a.c")):
        trie, topic = make_trie(), pattern.replace("*", "x").replace("#", "x.y")
        for number in range(20):
            trie.insert(pattern, f"q{number}")
        trie.insert(more, "q")
        assert [trie.has_interest(each) for each in (topic, f"{topic}.z", "x")] == [True, False, False]
        for number in range(20):
            assert trie.has_interest(topic)
            trie.remove(pattern, f"q{number}")
        assert not trie.has_interest(topic)


def test_interest_does_not_walk_each_way_of_many_wildcards() -> None:
    trie, started = Ctrie(), time.process_time()
    for count in (4, 10, 60):
        trie.insert("#." * count + "end", "q")
    assert not trie.has_interest(".".join(["x"] * 120))
    assert trie.has_interest(".".join(["x"] * 119 + ["end"]))
    assert time.process_time() - started < 5


def test_a_router_says_which_bindings_a_pattern_catches_and_whether_a_topic_interests() -> None:
    for router in (Router(), Router(cache=0)):
        for pattern, queue in (("a.*", "q"), ("a.b", "q"), ("#", "all"), ("b.c", "r")):
            router.bind(pattern, queue)
        assert router.covered_by("a.#") == [Binding("a.*", "q"), Binding("a.b", "q")]
        assert router.overlapping("a.#") == [Binding("#", "all"), Binding("a.*", "q"), Binding("a.b", "q")]
        for topic in ("a.b", "a.b", "b", "a.b.c"):
            assert router.num_interest(topic) == len(router.match(topic)) == (2 if topic == "a.b" else 1)
            assert router.has_interest(topic)
        router.unbind("#", "all")
        assert [router.has_interest(topic) for topic in ("a.b", "b", "b.c", "")] == [True, False, True, False]
        assert router.num_interest("b") == 0
        assert not router.has_interest("b")
        with pytest.raises(PatternError):
            router.has_interest("a.*")


def test_many_are_unbound_together_and_the_unknown_are_returned() -> None:
    router = Router()
    given = [("a.*", "q"), ("a.*", "r"), ("b", "q")]
    for each in given:
        router.bind(*each)
    assert router.unbind_many([("a.*", "q"), ("no", "q"), ("b", "r"), ("b", "q"), ("b", "q")]) == [
        Binding("no", "q"),
        Binding("b", "r"),
    ]
    assert list(router.bindings()) == [Binding("a.*", "r")]
    with pytest.raises(PatternError):
        router.unbind_many([("a.*", "r"), ("a..b", "q")])
    assert router.unbind_many([]) == []
    assert router.unbind_many(router.covered_by("#")) == []
    assert len(router) == 0


def test_unbinding_many_is_seen_at_once_and_leaves_a_cache_that_is_off_off() -> None:
    for router in (Router(), Router(cache=0)):
        before = router.cache
        for number in range(20):
            router.bind(f"k{number}.*", "q")
        assert router.match("k3.x") == {"q"}
        assert router.unbind_many((f"k{number}.*", "q") for number in range(25)) == [
            Binding(f"k{number}.*", "q") for number in range(20, 25)
        ]
        assert router.match("k3.x") == set()
        assert router.cache is before
