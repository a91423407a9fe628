"""The router: names, queues found once, and a cache that is bounded and never older than the bindings."""

from __future__ import annotations

import random

import pytest

from shardq.errors import ConfigError, PatternError
from shardq.routing import Binding, Router
from tests.routing.naive import naive_match


def test_a_queue_bound_by_several_patterns_is_found_once() -> None:
    router = Router()
    assert [router.bind(p, "q") for p in ("a.*", "#", "a.b", "a.b")] == [True, True, True, False]
    assert router.match("a.b") == {"q"}
    assert (sorted(router.bindings()), len(router)) == ([Binding(p, "q") for p in ("#", "a.*", "a.b")], 3)
    assert router.routes_of("q") == ["#", "a.*", "a.b"]
    assert router.routes_of("r") == []


def test_a_pattern_is_unbound_as_it_was_bound() -> None:
    router = Router()
    router.bind("#.#", "q")
    assert not router.unbind("#", "q")
    assert router.match("") == {"q"}
    assert router.unbind("#.#", "q")
    assert router.match("") == set()


@pytest.mark.parametrize(("pattern", "queue"), [("a..b", "q"), ("a b", "q"), ("a", ""), ("a", "b{c}"), (1, "q")])
def test_bad_bindings_are_refused(pattern: str, queue: str) -> None:
    router = Router()
    for act in (router.bind, router.unbind):
        with pytest.raises(ConfigError):
            act(pattern, queue)
    assert len(router) == 0


@pytest.mark.parametrize("topic", ["a.*", "a..b", " ", None, ["a"]])
@pytest.mark.parametrize("cache", [0, 10])
def test_bad_topics_are_refused(topic: str, cache: int) -> None:
    with pytest.raises(PatternError):
        Router(cache=cache).match(topic)


@pytest.mark.runs_in("test-all")
def test_the_cache_sees_every_change(rng: random.Random) -> None:
    router, plain, pairs = Router(cache=8), Router(cache=0), set[tuple[str, str]]()
    for _ in range(3000):
        pair = (".".join(rng.choices("ab*#", k=rng.randint(0, 3))), rng.choice("qr"))
        if rng.random() < 0.2:
            act = rng.choice(["bind", "unbind"])
            assert getattr(router, act)(*pair) == getattr(plain, act)(*pair)
            (pairs.add if act == "bind" else pairs.discard)(pair)
        topic = ".".join(rng.choices("ab", k=rng.randint(0, 3)))
        assert router.match(topic) == plain.match(topic) == {q for p, q in pairs if naive_match(p, topic)}
    assert router.cache is not None
    assert router.cache.hits > 500
    assert len(router.cache) <= 8


def test_a_literal_change_leaves_results_of_other_topics() -> None:
    router = Router()
    cache = router.cache
    assert cache is not None
    for topic in ("a", "b"):
        router.match(topic)
    router.bind("a", "q")
    assert router.match("a") == {"q"}
    assert router.match("b") == set()
    before = cache.misses
    assert before <= 4  # the second lookup of "b" hit, unless it shares a cell with "a"
    router.bind("*", "q")
    assert router.match("a") == router.match("b") == {"q"}
    assert cache.misses == before + 2


def test_topics_seen_once_do_not_drive_out_one_that_is_seen_often() -> None:
    router = Router(cache=100)
    for number in range(1000):
        router.match(f"once.k{number}")
        router.match("often")
    assert router.cache is not None
    assert router.cache.misses == 1001
    assert len(router.cache) <= 100


def test_the_cache_can_be_off() -> None:
    router = Router(cache=0)
    router.bind("a", "q")
    assert router.match("a") == {"q"}
    assert router.cache is None
    with pytest.raises(ConfigError):
        Router(cache=-1)
