"""Whether any pattern matches a topic: as `lookup`, but it stops at the first, and gathers nothing."""

from __future__ import annotations

from typing import Any

from shardq.routing.census import any_value, below, entry
from shardq.routing.match import fits, same, under
from shardq.routing.nodes import is_leaf, tail_of
from shardq.routing.topic import split


def interest(top: Any, text: str) -> bool:
    """Whether there is a value below *top*, the content of a root, that `lookup.walk` would find for *text*."""
    literals, node = top
    if any_value(entry(literals, text)):
        return True
    topic = split(text)
    size = len(topic)
    todo: list[tuple[Any, int]] = [(node, 0)]  # branches, each with how many words lead to it
    lowest: dict[int, int] = {}
    while todo:
        branch, at = todo.pop()
        if is_leaf(branch):
            if fits(tail_of(branch), topic, at):
                return True
            continue
        run, held, star, many, words = branch.main
        if not same(run, topic, at):
            continue
        at += len(run)
        if many is not None:
            starts = range(at, size + 1) if is_leaf(many) else under(many, topic, at, lowest)
            todo += [(many, after) for after in starts]
        if at < size:
            todo += [(each, at + 1) for each in (star, below(words, topic[at])) if each is not None]
        elif any_value(held):
            return True
    return False
