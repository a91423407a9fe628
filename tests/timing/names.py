"""What the tests call their entries by: the first argument."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shardq.timing import Callback, Entry


def name(entry: Entry) -> Any:
    assert isinstance(entry, Callback)
    return entry.args[0]


def names(entries: Iterable[Entry]) -> list[Any]:
    return [name(entry) for entry in entries]
