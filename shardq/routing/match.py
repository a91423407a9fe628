"""Comparing the words of a node or a leaf with those of a topic, and collecting values."""

from __future__ import annotations

from typing import Any


def run_matches(run: tuple[str, ...], topic: list[str], at: int) -> bool:
    """Whether the words of the topic from *at* on begin with those of *run*, which has no `#`."""
    if at + len(run) > len(topic):
        return False
    for word in run:
        if word != topic[at] and word != "*":
            return False
        at += 1
    return True


def tail_matches(tail: str, topic: list[str], at: int) -> bool:
    """Whether *tail* matches exactly the words from *at* on. Only its last word may be `#`."""
    left = len(topic) - at
    wanted = tail.count(".")
    if tail[-2:] == ".#":
        wanted -= 1
        if left < wanted:
            return False
    elif left != wanted:
        return False
    for word in tail.split(".")[1 : wanted + 1]:
        if word != topic[at] and word != "*":
            return False
        at += 1
    return True


def tail_matches_later(tail: str, topic: list[str], at: int) -> bool:
    """Whether *tail*, which has no `#` and is below one, matches exactly the words from *at* or a later word on."""
    start = len(topic) - tail.count(".")
    return start >= at and tail_matches(tail, topic, start)


def values_in(held: Any) -> list[str]:
    """The values of a leaf, or of a page of values."""
    kind = type(held)
    if kind is str:
        return [held]
    if kind is tuple:
        return list(held[1:])
    found: list[str] = []
    todo = [held]
    for page in todo:
        main = page.main
        if type(main) is list:
            todo += filter(None, main)
        else:
            found += main
    return found
