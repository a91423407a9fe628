"""The grammar of topics and patterns, and the meaning of a match, by AMQP's vectors."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from shardq.errors import PatternError
from shardq.routing import Ctrie, Router, covers
from shardq.routing.topic import MAX_TOPIC, check_bindable, check_pattern, check_topic
from tests.routing.naive import naive_match

# pattern, topics that it matches, topics that it does not (RabbitMQ's word rule: the empty text is zero words)
VECTORS = [
    ("", ["",], ["x", "."]),
    ("*", ["x", "longer-word"], ["", ".", "x.y"]),
    ("#", ["", "x", "x.y", "."], []),
    ("#.#", ["", "x", "x.y.z"], []),
    ("#.#.#", ["", "x", "x.y.z"], []),
    ("*.#", ["x", "x.y", "."], [""]),
    ("#.*", ["x", "x.y", "."], [""]),
    ("#.*.#", ["x", "x.y", "x.y.z"], [""]),
    ("*.#.#", ["x", "x.y.z"], [""]),
    ("*.#.*", ["x.y", "x.y.z"], ["x", ""]),
    ("*.*.#", ["x.y", "x.y.z"], ["x", ""]),
    ("x.#", ["x", "x.y", "x.", "x.y.z"], ["", "y", "xy"]),
    ("x.#.z", ["x.z", "x.y.z", "x..z", "x.z.z"], ["x", "x.z.y", "z"]),
    ("x.#.y.#.z", ["x.y.z", "x.y.z.y.z"], ["x.z", "x.y"]),
    ("#.x.#", ["x", "a.x", "x.a", "a.x.b"], ["", "a", "a.b"]),
    ("*.*", ["x.y", ".", "x."], ["x", "..", ""]),
    ("x.*.z", ["x..z", "x.y.z"], ["x.z", "x.y.y.z"]),
    ("x..z", ["x..z"], ["x.z"]),
    ("##", ["##"], ["x", "x.y"]),
    ("**", ["**"], ["x"]),
    ("x*", ["x*"], ["x", "xy"]),
    ("*x.#y", ["*x.#y"], ["ax.by"]),
    ("a.b", ["a.b"], ["a.*", "#", "a"]),
    ("a.*", ["a.*", "a.#"], ["*", "#"]),
    ("#.a", ["a", "#.a", "*.a"], ["#", "a.#"]),
    ("*.stock.#", ["usd.stock", "eur.stock.db"], ["stock.nasdaq"]),
]  # fmt: skip
CASES = [(p, t, True) for p, yes, _ in VECTORS for t in yes] + [(p, t, False) for p, _, no in VECTORS for t in no]


@pytest.mark.parametrize(("pattern", "topic", "matches"), CASES)
def test_a_pattern_matches_what_amqp_says(pattern: str, topic: str, matches: bool) -> None:
    assert naive_match(pattern, topic) is matches
    for rollup in (True, False):
        trie = Ctrie(rollup=rollup)
        trie.insert(pattern, "q")
        assert trie.lookup(topic) == ({"q"} if matches else set())


def test_all_vectors_together_find_each_queue_once() -> None:
    trie = Ctrie()
    for number, (pattern, _, _) in enumerate(VECTORS):
        trie.insert(pattern, f"q{number}")
        trie.insert(pattern, "all")
    for topic in {topic for _, yes, no in VECTORS for topic in yes + no}:
        found = {f"q{number}" for number, (pattern, _, _) in enumerate(VECTORS) if naive_match(pattern, topic)}
        assert trie.lookup(topic) == (found | {"all"} if found else set())


@pytest.mark.parametrize("topic", ["", "a", "a.b", "A-1_.z", "x" * MAX_TOPIC])
def test_a_good_topic_is_returned(topic: str) -> None:
    assert check_topic(topic) == check_pattern(topic) == topic


@pytest.mark.parametrize(
    ("topic", "complaint"),
    [
        (".", "empty word"),
        ("a..b", "empty word"),
        ("a.", "empty word"),
        ("a b", "'a b'"),
        ("a.\n", "has the word"),
        ("a\n", "has the word"),
        ("é", "has the word"),
        ("a.*", "wildcards are for patterns"),
        ("#", "wildcards are for patterns"),
        ("x" * (MAX_TOPIC + 1), "at most 255"),
        (b"a", "not bytes"),
        (None, "not NoneType"),
    ],
)
def test_a_bad_topic_is_refused_with_the_reason(topic: str, complaint: str) -> None:
    with pytest.raises(PatternError, match=complaint):
        check_topic(topic)


@pytest.mark.parametrize("pattern", ["*", "#", "a.*", "#.a.#.*", "*.*"])
def test_wildcards_are_words_of_patterns(pattern: str) -> None:
    assert check_pattern(pattern) == pattern


@pytest.mark.parametrize("pattern", ["a*", "##", "a.#b", "*.", ".#", "a.**"])
def test_a_wildcard_within_a_word_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        check_pattern(pattern)


@pytest.mark.parametrize("pattern", [".".join("*" * 16), ".".join("#*" * 8 + "a" * 16), ".".join("a" * 128)])
def test_a_pattern_of_a_bounded_cost_may_be_bound(pattern: str) -> None:
    assert check_bindable(pattern) == pattern
    assert Router().bind(pattern, "q")


@pytest.mark.parametrize("pattern", [".".join("*" * 17), ".".join("#*" * 8 + "#"), ".".join("#" + "a" * 32)])
def test_a_pattern_that_may_cost_more_is_refused_but_can_be_unbound_and_compared(pattern: str) -> None:
    router = Router()
    with pytest.raises(PatternError, match="at most 32 words, 16 of them wildcards"):
        check_bindable(pattern)
    for act in (lambda: router.bind(pattern, "q"), lambda: router.bind_many([("a", "q"), (pattern, "q")])):
        with pytest.raises(PatternError, match="of them wildcards"):
            act()
    assert len(router) == 0
    assert not router.unbind(pattern, "q")
    assert router.unbind_many([(pattern, "q")]) == [(pattern, "q")]
    assert covers("#", pattern)


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("letters", ["a", "ab"])
def test_a_match_takes_as_many_steps_as_patterns_have_words_whatever_their_wildcards(
    trie: Ctrie, rng: random.Random, letters: str
) -> None:
    """Beside the plain matcher, which takes as many as the words of both, multiplied."""
    words = ["#", "*", *letters]
    patterns = [".".join(rng.choices(words, k=rng.randint(20, 60))) for _ in range(500)]
    for number, pattern in enumerate(patterns):
        trie.insert(pattern, f"q{number}")
    topic = ".".join(rng.choices(letters, k=120))
    found: list[object] = []
    ours = min(taken(lambda: found.append(trie.lookup(topic))) for _ in range(3))
    plain = taken(lambda: found.append({f"q{n}" for n, each in enumerate(patterns) if naive_match(each, topic)}))
    assert found[0] == found[-1]
    assert ours < plain / 5


def taken(act: Callable[[], object]) -> float:
    """Seconds of CPU that it takes."""
    began = time.process_time()
    act()
    return time.process_time() - began
