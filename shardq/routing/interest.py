"""Whether any pattern matches a topic. As `lookup`, but it stops at the first match, and collects no values."""

from __future__ import annotations

from typing import Any

from shardq.routing.census import has_value, page_get
from shardq.routing.many import matching
from shardq.routing.topic import split


def interest(top: Any, text: str) -> bool:
    """Whether any pattern below *top*, the content of a root, matches the topic *text*."""
    literals, node = top
    return has_value(page_get(literals, text)) or any(map(has_value, matching(node, split(text), 1)))
