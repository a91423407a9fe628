"""The request for a screen, and its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from shardq.dashboard.source import SceneSource


class NotThere(Exception):
    """The subject of a screen does not exist. The text is for the person."""


@dataclass(frozen=True, slots=True)
class AskedScene:
    """A person's view: `parts` name it (queue, shard key, message id), `query` says how (order, search)."""

    parts: tuple[str, ...] = ()
    query: Mapping[str, str] = field(default_factory=dict)


Scene: TypeAlias = Callable[[SceneSource, AskedScene], Awaitable[dict[str, Any]]]
"""Returns what a screen shows, ready for JSON. Raises NotThere."""
