"""Patterns and topics: words of 3 to 12 letters, 3 to 6 of them, some words much more frequent than others."""

from __future__ import annotations

import random
import string
from functools import cache

WORDS = 2048


def make(count: int, share: float, lookups: int, seed: int = 7) -> tuple[list[str], list[str]]:
    """So many different patterns, a *share* of them with wildcards, and topics, four fifths of which some match."""
    rng = random.Random(seed)
    words = vocabulary(rng.randrange(2**30))
    patterns: dict[str, None] = {}
    while len(patterns) < count:
        topic = _topic(rng, words)
        if rng.random() < share:
            _make_wild(rng, topic)
        patterns[".".join(topic)] = None
    listed = list(patterns)
    topics = [
        _filled(rng, words, rng.choice(listed)) if rng.random() < 0.8 else ".".join(_topic(rng, words))
        for _ in range(lookups)
    ]
    return listed, topics


@cache
def vocabulary(seed: int) -> tuple[str, ...]:
    """The words, the most frequent first."""
    rng = random.Random(seed)
    return tuple("".join(rng.choices(string.ascii_lowercase, k=rng.randint(3, 12))) for _ in range(WORDS))


def zipf(topics: list[str], count: int, seed: int = 8) -> list[str]:
    """So many of *topics*, the n-th of them with a weight of 1/n."""
    weights = [1 / rank for rank in range(1, len(topics) + 1)]
    return random.Random(seed).choices(topics, weights, k=count)


def _topic(rng: random.Random, words: tuple[str, ...]) -> list[str]:
    return [words[int(rng.random() ** 2.2 * WORDS)] for _ in range(rng.randint(3, 6))]


def _make_wild(rng: random.Random, topic: list[str]) -> None:
    if rng.random() < 0.3:
        topic[-1] = "#"
    stars = rng.choice((0, 1, 1, 2) if topic[-1] == "#" else (1, 1, 2))
    for at in rng.sample(range(len(topic) - (topic[-1] == "#")), stars):
        topic[at] = "*"


def _filled(rng: random.Random, words: tuple[str, ...], pattern: str) -> str:
    return ".".join(rng.choice(words) if word in "*#" else word for word in pattern.split("."))
