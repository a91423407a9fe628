"""Whether any pattern matches a topic: as `lookup`, but it stops at the first, and gathers nothing."""

from __future__ import annotations

from typing import Any

from shardq.routing.census import any_value, entry
from shardq.routing.many import matching
from shardq.routing.topic import split


def interest(top: Any, text: str) -> bool:
    """Whether there is a value below *top*, the content of a root, that `lookup.walk` would find for *text*."""
    literals, node = top
    return any_value(entry(literals, text)) or any(map(any_value, matching(node, split(text), 1)))
