"""What shardq has, read from its code: calls, functions in Redis, roles, errors, commands, settings, numbers, keys.

A test that shows something of each of these compares its table with them by `differences`. So it fails for one that
the table lacks, and for one that is no more. What a table leaves out on purpose stands beside it, with the reason.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType, MappingProxyType
from typing import Any, Final

from shardq import (
    Action,
    AsyncAction,
    AsyncClient,
    AsyncDelivery,
    AsyncQueue,
    AsyncWriter,
    Client,
    Delivery,
    Queue,
    Writer,
    errors,
)
from shardq.cli.parsers import LaterParser
from shardq.cli.program import parser
from shardq.client.async_job import AsyncJob
from shardq.client.async_schedules import AsyncSchedules
from shardq.client.job import Job
from shardq.client.schedules import Schedules
from shardq.protocol import scripts
from tests.house.twins import NAMES

TWINS: Final[Mapping[type, type]] = {
    Action: AsyncAction, Client: AsyncClient, Delivery: AsyncDelivery, Job: AsyncJob, Queue: AsyncQueue,
    Schedules: AsyncSchedules, Writer: AsyncWriter,
}  # fmt: skip
"""What programs call, by the class for threads."""

LOCAL: Final[Mapping[str, str]] = {
    "Client.beside": "it makes a client",
    "Client.close": "it ends connections",
    "Client.from_url": "it makes a client",
    "Client.queue": "it makes a queue, which is looked up by its first call",
    "Client.writer": "it makes a writer",
    "Delivery.on_lost": "it notes a function",
    "Delivery.processing": "it opens a span",
    "Job.of": "it makes a job",
    "Queue.job": "it makes a job",
}
"""The methods that ask no server, and what they do instead."""

_FACTS: Final = re.compile(r"^local FACTS = \{\n(.*?)^\}$", re.MULTILINE | re.DOTALL)
_VERB: Final = re.compile(r"^-- @verb (\w+)(.*?)^function ", re.MULTILINE | re.DOTALL)
_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def differences(table: Iterable[str], there: Iterable[str], apart: Mapping[str, str] = _NONE) -> list[str]:
    """How a table differs from what is *there*; *apart* has what it leaves out, with the reasons.

    Behind a comma, the name of an entry may say more: "Queue.write, delayed" is one for "Queue.write".
    """
    named, known = {each.partition(",")[0] for each in table}, {*there}
    found = {
        "is missing": known - named - apart.keys(),
        "is there no more": (named | apart.keys()) - known,
        "is in the table, and said to be left out": named & apart.keys(),
        "is left out without a reason": {each for each, why in apart.items() if not why},
    }
    return [f"{each} {what}" for what, names in found.items() for each in sorted(names)]


def not_called(table: Mapping[str, Callable[..., object]]) -> list[str]:
    """The entries whose function does not call the method that they name: "Queue.write, delayed" calls `write`."""
    methods = {entry: entry.partition(",")[0].rpartition(".")[2] for entry in table}
    return [entry for entry, call in table.items() if methods[entry] not in _attributes(call.__code__)]


def _attributes(code: CodeType) -> set[str]:
    """The names that a function looks up, also in functions within it."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return {*code.co_names}.union(*map(_attributes, inner))


def members(kind: Any) -> dict[str, Any]:
    """What programs find in a class of shardq, by its name with threads; nothing that is Python's own."""
    instance = kind.__new__(kind)  # a client leaves out what only other parts of shardq call
    names = [name for name in dir(instance) if not name.startswith("_") and _is_own(kind, name)]
    return {NAMES.get(name, name): inspect.getattr_static(kind, name) for name in names}


def _is_own(kind: type, name: str) -> bool:
    holder = next(each for each in kind.__mro__ if name in vars(each))
    return holder.__module__ != "builtins"


def methods(kind: type) -> set[str]:
    """What programs can call of a class."""
    callables = (classmethod, staticmethod)
    return {name for name, each in members(kind).items() if inspect.isfunction(each) or isinstance(each, callables)}


def calls(*kinds: type) -> set[str]:
    """The methods that ask a server, as "Queue.read": those of either twin of these classes, or of all."""
    of_twins = {kind: methods(kind) | methods(TWINS[kind]) for kind in kinds or TWINS}
    return {f"{kind.__name__}.{name}" for kind, names in of_twins.items() for name in names} - LOCAL.keys()


def functions() -> dict[str, tuple[str, ...]]:
    """The functions that run in Redis, with their flags."""
    return {name: verb.flags for name, verb in scripts.library().verbs.items()}


def looks() -> set[str]:
    """The functions that change nothing."""
    return {name for name, flags in functions().items() if "no-writes" in flags}


def moves_of_the_epoch() -> set[str]:
    """The functions that move a queue on to another epoch: they take it as `following`."""
    texts = [each.read_text() for each in scripts.root().iterdir() if each.name.endswith(".lua")]
    headers = [header for text in texts for header in _VERB.findall(text)]
    return {name for name, header in headers if "] following: " in header}


def error_classes() -> dict[str, type[errors.ShardqError]]:
    """The errors of shardq."""
    found: list[tuple[str, Any]] = inspect.getmembers(errors, inspect.isclass)
    return {name: each for name, each in found if each.__module__ == errors.__name__}


def commands() -> dict[str, list[argparse.Action]]:
    """The commands of the program, and what each takes; those of a group as "edge send"."""
    return {" ".join(words): takes for words, takes in _leaves(parser(), ())}


def subparsers(top: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of the commands of *top*, by name, each with all that it takes: they are filled when they parse."""
    found = [each.choices for each in top._actions if isinstance(each, argparse._SubParsersAction)]
    for each in found[0].values() if found else ():
        if isinstance(each, LaterParser):
            each.complete()
    return dict(found[0]) if found else {}


def _leaves(
    top: argparse.ArgumentParser, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], list[argparse.Action]]]:
    below = subparsers(top)
    if not below:
        yield words, top._actions
    for name, each in below.items():
        yield from _leaves(each, (*words, name))


def facts() -> set[str]:
    """What is told of a queue by its state, beside its settings: `FACTS` of lua/queue.lua."""
    (table,) = _FACTS.findall((scripts.root() / "queue.lua").read_text())
    return set(re.findall(r"'(\w+)'", table))
