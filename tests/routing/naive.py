"""The plainest definition of when a pattern matches a topic."""

from __future__ import annotations

from collections.abc import Sequence

from shardq.routing.topic import MANY, ONE, split


def naive_match(pattern: str, topic: str) -> bool:
    """Whether *pattern* matches *topic*: the definition, against which the trie is tested.

    >>> naive_match("orders.*.created", "orders.eu.created"), naive_match("orders.#", "orders")
    (True, True)

    It computes row by row, as one does for an edit distance.
    """
    words = split(topic)
    row = [True] + [False] * len(words)  # row[n]: the pattern so far matches the first n words
    for wanted in split(pattern):
        row = _next_row(row, wanted, words)
    return row[-1]


def _next_row(row: list[bool], wanted: str, words: Sequence[str]) -> list[bool]:
    if wanted == MANY:
        return [any(row[: n + 1]) for n in range(len(row))]
    return [False] + [row[n] and wanted in (ONE, word) for n, word in enumerate(words)]
