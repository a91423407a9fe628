"""A file's declarations, checked as a whole before anything is changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from shardq.arguments import check_name, shown, whole
from shardq.errors import ConfigError
from shardq.files import toml
from shardq.model import Limits, Plan, QueueConfig
from shardq.model.limits import MAX_WEIGHT
from shardq.model.settings import queue_config
from shardq.ops.operate.assign import MAX_ASSIGNED
from shardq.ops.operate.limits import MAX_SHARD_KEYS as MAX_LIMITED
from shardq.ops.operate.limits import check_plan
from shardq.ops.operate.weights import MAX_WEIGHTED
from shardq.protocol.keys import RouterKeys
from shardq.routing import Binding
from shardq.routing.topic import check_bindable
from shardq.sharding import MAX_STREAMS, check_names

UNSET: Final = "none"
"""In place of a setting without a value, since TOML has no such word."""


@dataclass(frozen=True)
class DeclaredQueue:
    """One queue: the settings that are named, and where they are named, all weights, limits and keys to be assigned."""

    name: str
    settings: Mapping[str, Any]
    weights: Mapping[str, int] | None = None
    limits: Mapping[str, Limits | str] | None = None
    plans: Mapping[str, Plan] | None = None
    assigned: tuple[str, ...] = ()
    max_overlap: int | None = None


@dataclass(frozen=True)
class Declaration:
    """The queues of a file, and the bindings of each router that it names."""

    queues: tuple[DeclaredQueue, ...]
    bindings: Mapping[str, frozenset[Binding]] = field(default_factory=dict)


def parsed(raw: bytes) -> Declaration:
    """Return what a file says. ConfigError tells what is wrong with it, and where."""
    top = toml(raw, "this")
    _only(top, {"queues", "bindings"}, "the file")
    queues = tuple(declared_queue(name, each) for name, each in _table(top.get("queues", {}), "queues").items())
    return Declaration(queues, _bindings(top.get("bindings", [])))


def declared_queue(name: str, found: Any) -> DeclaredQueue:
    """Return what the table of a queue says. ConfigError tells what is wrong with it."""
    where = f"queue {name!r}"
    check_name(name)
    table = dict(_table(found, where))
    weights, limits, plans = table.pop("weights", None), table.pop("limits", None), table.pop("plans", None)
    assignment = _table(table.pop("assignment", {}), f"{where}: assignment")
    settings = {key: None if value == UNSET else value for key, value in table.items()}
    try:
        queue_config(settings)
        return DeclaredQueue(
            name,
            settings,
            None if weights is None else _weights(_table(weights, "weights")),
            None if limits is None else _all_limits(_table(limits, "limits")),
            None if plans is None else _plans(_table(plans, "plans")),
            *_assignment(assignment),
        )
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def _weights(table: Mapping[str, Any]) -> Mapping[str, int]:
    _keys("weights", table, MAX_WEIGHTED)
    return {key: whole(f"the weight of {shown(key)}", weight, 1, MAX_WEIGHT) for key, weight in table.items()}


def _all_limits(table: Mapping[str, Any]) -> Mapping[str, Limits | str]:
    _keys("limits", table, MAX_LIMITED)
    return {key: check_plan(each) if isinstance(each, str) else _limits(key, each) for key, each in table.items()}


def _plans(table: Mapping[str, Any]) -> Mapping[str, Plan]:
    known = {*Plan.__struct_fields__} - {"tenants"}
    found: dict[str, Plan] = {}
    for name, each in table.items():
        where = f"plan {shown(name)}"
        _only(_table(each, where), known, where)
        found[check_plan(name)] = Plan(**each)
    return found


def _assignment(table: Mapping[str, Any]) -> tuple[tuple[str, ...], int | None]:
    _only(table, {"keys", "max_overlap"}, "assignment")
    keys, overlap = table.get("keys", []), table.get("max_overlap")
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ConfigError(f"assignment: keys must be a list of shard keys, not {shown(keys)}")
    if overlap is not None:
        whole("assignment: max_overlap", overlap, 0, MAX_STREAMS - 1)
    return _keys("assignment", keys, MAX_ASSIGNED), overlap


def _keys(where: str, found: Iterable[str], most: int) -> tuple[str, ...]:
    """Return shard keys without duplicates. ConfigError for a bad one, and if there are more than *most*."""
    keys = tuple(dict.fromkeys(found))
    try:
        check_names(keys, most)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    return keys


def _limits(key: str, found: Any) -> Limits:
    where = f"the limits of {shown(key)}"
    table = _table(found, where)
    _only(table, {*Limits.__struct_fields__}, where)
    return Limits(**table)


def _bindings(found: Any) -> dict[str, frozenset[Binding]]:
    if not isinstance(found, list):
        raise ConfigError("bindings must be tables: [[bindings]], with pattern and queue")
    routers: dict[str, set[Binding]] = {}
    for number, each in enumerate(found, 1):
        where = f"binding {number}"
        table = _table(each, where)
        _only(table, {"pattern", "queue", "router"}, where)
        router = table.get("router", "default")
        if absent := sorted({"pattern", "queue"} - table.keys()):
            raise ConfigError(f"{where}: it has no {absent[0]}")
        for word, value in table.items():
            if not isinstance(value, str):
                raise ConfigError(f"{where}: {word} must be a text, not {shown(value)}")
        try:
            RouterKeys(router)
            made = Binding(check_bindable(table["pattern"]), check_name(table["queue"]))
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
        routers.setdefault(router, set()).add(made)
    return {router: frozenset(made) for router, made in routers.items()}


def _table(found: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(found, Mapping):
        raise ConfigError(f"{where} must be a table, not {shown(found)}")
    return found


def _only(table: Mapping[str, Any], known: set[str], where: str) -> None:
    if unknown := sorted(set(table) - known):
        raise ConfigError(f"{where} has {shown(unknown[0])}, which is none of {', '.join(sorted(known))}")


def stored_settings(config: QueueConfig) -> dict[str, Any]:
    """Return the settings of *config* that are not the defaults, and the number of streams."""
    usual = QueueConfig()
    return {
        name: getattr(config, name)
        for name in QueueConfig.__struct_fields__
        if name == "streams" or getattr(config, name) != getattr(usual, name)
    }
