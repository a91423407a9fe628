"""A scene that fits: lists of a screen are cut, until it is no larger than a scene may be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shardq.dashboard.channel import MAX_SCENE
from shardq.dashboard.encoding import encoded

KEPT_SHARE: Final = 0.8
"""The part of the largest list that is kept when a scene is too large. It takes a few rounds at most."""


def fitted(scene: dict[str, Any], lists: Mapping[str, str]) -> dict[str, Any]:
    """Return a scene of at most MAX_SCENE bytes.

    *lists* names those lists that may be cut, each with the field that counts what is left out. Names that others chose
    may be long, so how many rows fit is known only when they are there.
    """
    while len(encoded(scene)) > MAX_SCENE:
        name = max(lists, key=lambda each: len(encoded({"": scene[each]})) if scene[each] else 0)
        rows, more = scene[name], lists[name]
        if not rows:
            break
        kept = rows[: int(KEPT_SHARE * len(rows))]
        scene = {**scene, name: kept, more: scene[more] + len(rows) - len(kept)}
    return scene
