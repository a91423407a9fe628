"""The public entries, found in the package itself: what is exported, and how it is called."""

from __future__ import annotations

import inspect
import pkgutil
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from importlib import import_module
from typing import Any, Final, NamedTuple, get_origin, get_type_hints, is_typeddict

import msgspec

import shardq
from shardq.backoff import Constant, Exponential
from shardq.client.action import Action
from shardq.client.async_action import AsyncAction
from shardq.client.async_job import AsyncJob
from shardq.client.async_schedules import AsyncSchedules
from shardq.client.base import ClientSettings
from shardq.client.job import Job
from shardq.client.schedules import Schedules
from shardq.codec import BytesCodec, JsonCodec, MsgpackCodec
from shardq.dashboard import Role
from shardq.edge import AsyncSent, EdgeSettings, Sent
from shardq.errors import ShardqError
from shardq.gateway.settings import GatewaySettings
from shardq.gateway.tokens import Tokens
from shardq.model import DeliveryView
from shardq.model.queue_settings import QueueSettings
from shardq.routing import Ctrie
from shardq.sharding import Odds, shard
from shardq.tasks import BatchTask, Call, Task
from shardq.timing import Bucket, Callback, TimingWheel

APART: Final = frozenset({"cli", "declared", "django", "drivers", "flow", "spark"})
"""Packages that are tried elsewhere (commands, Spark), or that no user calls."""

INNER: Final = (AsyncSent, BatchTask, Bucket, Call, Callback, Ctrie, DeliveryView, Role, Sent, Task, TimingWheel)
"""Parts of timers, routers, deliveries, producers and tasks: these check what they hand on. And names of roles."""

MADE: Final = (Action, AsyncAction, AsyncJob, AsyncSchedules, Job, Schedules)
"""What queues make: only their methods are called."""

ALSO: Final = (
    *(BytesCodec, Constant, Exponential, GatewaySettings, JsonCodec, MsgpackCodec, Odds, Tokens.read, shard),
    *MADE,
)
"""What the documents name outside of what packages export."""

TAKEN: Final[Mapping[str, type]] = {
    "Edge": EdgeSettings, "AsyncEdge": EdgeSettings, "configure": QueueSettings, "fake_client": ClientSettings,
}  # fmt: skip
"""Whose fields an entry takes by `**settings` where its annotation does not say so."""


class Entry(NamedTuple):
    """A function, a class, or a method: then `call` is its name, and `owner` the class of what it is called on.

    `parameters` are given by name; those that are `asked` must be given. One that is `open` refuses other names itself.
    """

    name: str
    owner: type | None
    call: Any
    asked: tuple[str, ...]
    parameters: tuple[str, ...]
    is_open: bool


def exported() -> list[Any]:
    """What the packages export, each once."""
    found: dict[int, Any] = {}
    for module in pkgutil.iter_modules(shardq.__path__):
        if module.name not in APART:
            package = import_module(f"shardq.{module.name}")
            found |= {id(each): each for each in (getattr(package, name) for name in getattr(package, "__all__", ()))}
    found |= {id(each): each for each in (getattr(shardq, name) for name in shardq.__all__)}
    return [each for each in (found | {id(each): each for each in ALSO}).values() if each not in INNER]


def entries() -> list[Entry]:
    """All entries that take an argument."""
    every = exported()
    every = [each for each in every if not (isinstance(each, type) and issubclass(each, ShardqError))]
    public = {each for each in every if isinstance(each, type)}
    found: list[Entry] = []
    for each in every:
        if isinstance(each, type) and not is_typeddict(each) and not _is_abstract(each):
            found += _of_class(each, public)
        elif isinstance(each, (types.FunctionType, types.MethodType)):
            found += _entry(each.__qualname__, None, each, each, public)
    return found


def _of_class(owner: type, public: set[type]) -> Iterator[Entry]:
    if not _is_record(owner) and owner not in MADE:
        yield from _entry(owner.__name__, None, owner, owner, public)
    for name in dir(owner):
        method = inspect.getattr_static(owner, name)
        if name.startswith("_") or _is_of_base(owner, name):
            continue
        if isinstance(method, (classmethod, staticmethod)) and owner not in MADE:
            yield from _entry(f"{owner.__name__}.{name}", None, getattr(owner, name), getattr(owner, name), public)
        elif isinstance(method, property) and method.fset is not None:
            yield Entry(f"{owner.__name__}.{name} =", owner, f"{name}=", ("value",), ("value",), False)
        elif inspect.isfunction(method):
            yield from _entry(f"{owner.__name__}.{name}", owner, name, method, public)


def _is_of_base(owner: type, name: str) -> bool:
    """Whether a method is Python's own, such as `count` of a tuple."""
    holder = next(each for each in owner.__mro__ if name in vars(each))
    return holder.__module__ == "builtins"


def _is_record(owner: type) -> bool:
    """Whether a class keeps what it is given, unchecked: what calls return, and errors."""
    if issubclass(owner, (BaseException, tuple)):
        return "__init__" not in vars(owner)
    return (is_dataclass(owner) or issubclass(owner, msgspec.Struct)) and not hasattr(owner, "__post_init__")


def _is_abstract(owner: type) -> bool:
    return bool(getattr(owner, "_is_protocol", False))


def _entry(name: str, owner: type | None, call: Any, described: Any, public: set[type]) -> Iterator[Entry]:
    try:
        signature, hints = inspect.signature(described), _hints(described)
    except (ValueError, TypeError):
        return
    asked: list[str] = []
    taken: list[str] = []
    is_open = False
    for each in signature.parameters.values():
        hint = hints.get(each.name)
        is_asked = each.default is each.empty
        if each.kind is each.VAR_KEYWORD:
            settings = TAKEN.get(name.rpartition(".")[2]) or _unpacked(hint)
            taken += get_type_hints(settings) if settings else ()
            is_open = True
        elif each.name == "self" or each.kind is each.VAR_POSITIONAL:
            continue
        elif _is_public(hint, public):
            taken.append(each.name)
            asked += [each.name] if is_asked else []
        elif is_asked:
            return
    if taken:
        yield Entry(name, owner, call, tuple(asked), tuple(dict.fromkeys(taken)), is_open)


def _hints(described: Any) -> Mapping[str, Any]:
    function = getattr(described, "__init__" if isinstance(described, type) else "__func__", described)
    if isinstance(described, type) and not inspect.isfunction(function):
        return get_type_hints(described)
    space: dict[str, Any] = {}
    for module in ("shardq", "shardq.client.client", "shardq.client.async_client", "shardq.ops.write.outgoing"):
        space |= vars(import_module(module))
    try:
        return get_type_hints(function, localns=space | vars(import_module(function.__module__)))
    except NameError:
        return getattr(function, "__annotations__", {})


def _unpacked(hint: Any) -> Any:
    return typing.get_args(hint)[0] if typing.get_args(hint) and is_typeddict(typing.get_args(hint)[0]) else None


def _is_public(hint: Any, public: set[type]) -> bool:
    """Whether a user can have what a parameter wants: no class of shardq's own that it does not export."""
    origin = get_origin(hint)
    if origin is typing.Literal:
        return True
    if origin in (types.UnionType, typing.Union):
        return any(_is_public(each, public) for each in typing.get_args(hint) if each is not types.NoneType)
    if origin is not None:
        return _is_public(origin, public) and all(_is_public(each, public) for each in typing.get_args(hint))
    own = isinstance(hint, type) and hint.__module__.startswith("shardq.")
    return not own or hint in public or bool(getattr(hint, "_is_protocol", False))
