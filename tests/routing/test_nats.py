"""The cases of NATS's sublist tests, its full wildcard `>` being `#` at the end."""

from __future__ import annotations

import random

import pytest

from shardq.errors import PatternError
from shardq.routing import Binding, Ctrie, Router, covers, overlaps
from tests.routing.naive import naive_match


def test_a_literal_and_wildcards_in_the_middle_and_at_the_end_all_match_one_topic(trie: Ctrie) -> None:
    patterns = ["a.b.c", "a.*.c", "a.b.*", "*.b.c", "a.#", "a.b.#", "#"]
    for pattern in patterns:
        assert trie.insert(pattern, pattern)
    assert len(trie) == 7
    assert trie.lookup("a.b.c") == set(patterns)
    assert trie.lookup("a.b.d") == {"a.b.*", "a.#", "a.b.#", "#"}
    assert trie.remove("a.*.c", "a.*.c")
    assert len(trie) == 6
    assert trie.lookup("a.b.c") == set(patterns) - {"a.*.c"}


def test_one_word_does_not_match_two(trie: Ctrie) -> None:
    for pattern in ("foo", "*"):
        trie.insert(pattern, pattern)
    assert [trie.lookup(topic) for topic in ("foo", "foo.bar", "bar")] == [{"foo", "*"}, set(), {"*"}]


@pytest.mark.parametrize(
    ("pattern", "topic", "others"),
    [
        ("foo.*-", "foo.*-", ["foo.bar-", "foo.bar", "foo"]),
        ("foo.#-", "foo.#-", ["foo.bar-", "foo", "foo.a.b-"]),
        ("*.foo-#", "x.foo-#", ["x.foo-", "x.foo-a", "x", "x.foo-#.a"]),
        ("*.foo.-#", "x.foo.-#", ["x.foo", "x.foo.a", "x.foo.-#.a"]),
        ("#.**", "x.**", ["x", "x.y", "x.*"]),
        ("*.*a.b", "x.*a.b", ["x.aa.b", "x.b"]),
    ],
)
def test_a_wildcard_within_a_longer_word_is_text_to_the_trie_and_an_error_to_the_router(
    trie: Ctrie, pattern: str, topic: str, others: list[str]
) -> None:
    assert trie.insert(pattern, "q")
    assert trie.lookup(topic) == {"q"}
    assert [trie.lookup(other) for other in others] == [set()] * len(others)
    assert [trie.has_interest(each) for each in (topic, *others)] == [True] + [False] * len(others)
    assert not any(trie.remove(other, "q") for other in others)
    assert trie.remove(pattern, "q")
    assert trie.lookup(topic) == set()
    with pytest.raises(PatternError):
        Router().unbind(pattern, "q")


def test_a_child_literal_does_not_hide_a_wildcard_beside_it(trie: Ctrie) -> None:
    for pattern in ("foo.bar.baz", "foo.*", "*.bar.x"):
        trie.insert(pattern, pattern)
    assert trie.lookup("foo.bar") == {"foo.*"}
    assert trie.lookup("foo.bar.x") == {"*.bar.x"}
    assert trie.has_interest("foo.bar")
    assert not trie.has_interest("foo.bar.y")


def test_of_hundreds_of_subscribers_the_first_a_middle_and_the_last_go(trie: Ctrie) -> None:
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


def test_what_matches_nothing_is_one_object_and_counts_as_a_miss_once() -> None:
    router = Router()
    router.bind("foo", "q")
    assert router.match("bar") is router.match("baz") is router.match("bar")
    assert router.cache is not None
    assert (router.cache.hits, router.cache.misses) == (1, 2)
    for _ in range(3):
        router.match("foo")
    assert (router.cache.hits, router.cache.misses) == (3, 3)


def test_three_of_four_are_hits() -> None:
    router = Router()
    router.bind("foo.*", "q")
    assert [router.match("foo.bar") for _ in range(4)] == [{"q"}] * 4
    cache = router.cache
    assert cache is not None
    assert cache.hits / (cache.hits + cache.misses) == 0.75


@pytest.mark.parametrize("change", ["foo.bar", "foo.*", "#"])
def test_what_comes_and_goes_after_a_match_was_kept_is_seen(change: str) -> None:
    router = Router()
    router.bind("foo.bar", "first")
    for _ in range(2):
        kept = router.match("foo.bar")
        assert kept == {"first"}
        router.bind(change, "second")
        assert router.match("foo.bar") == {"first", "second"}
        router.unbind(change, "second")
        assert router.match("foo.bar") == kept == {"first"}  # what was handed out is as it was
    router.unbind("foo.bar", "first")
    assert router.match("foo.bar") == set()


def test_twice_as_many_topics_as_the_cache_keeps_leave_it_as_large_as_it_may_be() -> None:
    router = Router(cache=64)
    router.bind("#", "q")
    assert router.cache is not None
    for number in range(128):
        assert router.match(f"t{number}") == {"q"}
        assert len(router.cache) <= 64


def test_a_cache_that_is_off_stays_off_whatever_is_done() -> None:
    router = Router(cache=0)
    router.bind_many([("a.*", "q"), ("b", "q"), ("a.*", "q")])
    assert router.has_interest("b")
    assert router.match("a.x") == {"q"}
    assert router.unbind_many([("a.*", "q"), ("no", "q")]) == [Binding("no", "q")]
    assert router.match("a.x") == set()
    assert router.cache is None


def test_of_a_batch_with_one_unknown_the_rest_goes_and_the_unknown_is_told(trie: Ctrie, rng: random.Random) -> None:
    router, pairs = Router(), {(f"{kind}k{n}", f"q{n % 3}") for n in range(50) for kind in ("", "*.", "#.")}
    assert router.bind_many(pairs) == []
    for topic in ("k7", "x.k7"):
        router.match(topic)
    gone = rng.sample(sorted(pairs), 100)
    assert router.unbind_many([*gone[:60], ("unknown", "q"), *gone[60:]]) == [("unknown", "q")]
    left = pairs - set(gone)
    assert set(router.bindings()) == left
    for number in range(50):
        for topic in (f"k{number}", f"x.k{number}"):
            assert router.match(topic) == {queue for pattern, queue in left if naive_match(pattern, topic)}


def test_a_pattern_finds_what_it_matches_among_literals_and_patterns() -> None:
    router = Router()
    for pattern in ("foo.bar", "foo.baz", "foo.*", "foo.bar.baz", "*.bar", "other", "foo.#"):
        router.bind(pattern, "q")

    def found(bindings: list[Binding]) -> list[str]:
        return [each.pattern for each in bindings]

    assert found(router.covered_by("foo.*")) == ["foo.*", "foo.bar", "foo.baz"]
    assert found(router.overlapping("foo.*")) == ["*.bar", "foo.#", "foo.*", "foo.bar", "foo.baz"]
    assert found(router.overlapping("foo.bar")) == ["*.bar", "foo.#", "foo.*", "foo.bar"]
    assert found(router.covered_by("foo.bar")) == ["foo.bar"]
    assert found(router.covered_by("foo.#")) == ["foo.#", "foo.*", "foo.bar", "foo.bar.baz", "foo.baz"]
    assert router.covered_by("#") == router.overlapping("#") == sorted(router.bindings())


@pytest.mark.parametrize(
    ("pattern", "other", "subset", "collide"),
    [
        ("foo.*", "foo.bar", True, True),
        ("foo.bar", "foo.*", False, True),
        ("foo.#", "foo.*.bar", True, True),
        ("*.bar", "foo.*", False, True),
        ("foo.*.*", "foo.bar.#", False, True),
        ("foo.bar", "foo.bar.baz", False, False),
        ("*.*", "*", False, False),
        ("#", "foo", True, True),
        ("foo.*", "foo.#", False, True),
    ],
)
def test_subsets_and_collisions(pattern: str, other: str, subset: bool, collide: bool) -> None:
    assert covers(pattern, other) is subset
    assert overlaps(pattern, other) is overlaps(other, pattern) is collide
