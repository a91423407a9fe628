"""Maps in payloads: to Arrow a map is a list of pairs, in JSON and MessagePack it is a map, wherever it is nested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardq.extras import extra

with extra("spark"):
    import pyarrow as pa

Change = Callable[[Any], Any]


def listed(column: pa.Array) -> list[Any]:
    """The values of *column*, with maps as dicts."""
    change = _changing(column.type, _mapped) or _same
    return [*map(change, column.to_pylist())]


def pairing(kind: pa.DataType) -> Change | None:
    """Returns a function that makes a decoded value one of *kind* for Arrow: dicts become lists of pairs.

    None if *kind* has no map.
    """
    return _changing(kind, _paired)


def _changing(kind: pa.DataType, change: Callable[[Change, Change], Change]) -> Change | None:
    """How the maps in a value of *kind* are changed; None if it has none."""
    if pa.types.is_map(kind):
        return change(_changing(kind.key_type, change) or _same, _changing(kind.item_type, change) or _same)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        each = _changing(kind.value_type, change)
        return None if each is None else lambda value: [*map(each, value)] if isinstance(value, list) else value
    if pa.types.is_struct(kind):
        found = {field.name: _changing(field.type, change) for field in kind}
        fields = {name: change for name, change in found.items() if change is not None}
        return _fielded(fields) if fields else None
    return None


def _fielded(fields: dict[str, Change]) -> Change:
    def changed(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return value | {name: change(value[name]) for name, change in fields.items() if name in value}

    return changed


def _mapped(key: Change, item: Change) -> Change:
    return lambda pairs: None if pairs is None else {key(name): item(value) for name, value in pairs}


def _paired(key: Change, item: Change) -> Change:
    return lambda value: None if value is None else [(key(name), item(each)) for name, each in value.items()]


def _same(value: Any) -> Any:
    return value
