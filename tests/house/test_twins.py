"""The sync and the async clients are twins: the same methods, the same signatures, the same docstrings."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from shardq import client

PAIRS = [
    (client.Client, client.AsyncClient),
    (client.Queue, client.AsyncQueue),
    (client.Delivery, client.AsyncDelivery),
    (client.Writer, client.AsyncWriter),
]
RENAMED = {"close": "aclose"}  # contextlib.aclosing expects it
SYNC_ONLY = {"end_wait"}  # a task is cancelled
SYNTAX = {"__enter__", "__exit__", "__aenter__", "__aexit__", "__iter__", "__next__", "__aiter__", "__anext__"}

each_pair = pytest.mark.parametrize(("sync", "twin"), PAIRS, ids=lambda each: each.__name__)


def public(client: type) -> dict[str, Any]:
    """The public attributes that *client* or a base of its own defines."""
    bases = [base for base in client.__mro__ if base.__module__.startswith("shardq.")]
    found = {name: each for base in reversed(bases) for name, each in vars(base).items() if not name.startswith("_")}
    return {name: each for name, each in found.items() if name not in SYNC_ONLY}


def function(member: Any) -> Any:
    """The function behind a method, property, class method or static method; None for plain data."""
    member = getattr(member, "fget", None) or getattr(member, "__func__", member)
    return member if inspect.isfunction(member) else None


def words(function: Any) -> list[tuple[str, str, str, str]]:
    """A signature as text, with Async* names read as their sync twins."""
    signature = inspect.signature(function)
    named = [
        (each.name, each.annotation, each.kind.description, each.default) for each in signature.parameters.values()
    ]
    rows = [(name, _plain(note), kind, repr(default)) for name, note, kind, default in named]
    return [*rows, ("return", _plain(signature.return_annotation), "", "")]


def _plain(annotation: object) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\bAsync(?=[A-Z])", "", text)


@each_pair
def test_twins_have_the_same_names(sync: type, twin: type) -> None:
    assert sorted(RENAMED.get(name, name) for name in public(sync)) == sorted(public(twin))


@each_pair
def test_twins_have_the_same_signatures(sync: type, twin: type) -> None:
    differ = {}
    for name, member in public(sync).items():
        other = public(twin)[RENAMED.get(name, name)]
        assert type(member) is type(other), name
        if function(member) and words(function(member)) != words(function(other)):
            differ[name] = (words(function(member)), words(function(other)))
    assert differ == {}


@each_pair
def test_the_sync_twin_never_awaits_and_both_construct_alike(sync: type, twin: type) -> None:
    assert [name for name, each in public(sync).items() if inspect.iscoroutinefunction(function(each))] == []
    assert words(sync)[:-1] == words(twin)[:-1]


@each_pair
def test_twins_support_the_same_syntax(sync: type, twin: type) -> None:
    def syntax(client: type) -> set[str]:
        return {name.replace("__a", "__", 1) for name in SYNTAX if hasattr(client, name)}

    assert syntax(sync) == syntax(twin)


@each_pair
def test_twins_say_the_same_of_each_method(sync: type, twin: type) -> None:
    """Who reads the async client's documentation is not sent elsewhere, and neither text falls behind the other."""
    differ = []
    for name, member in public(sync).items():
        other = public(twin)[RENAMED.get(name, name)]
        if function(member) and name != "close":  # closing differs in a forked child
            mine, theirs = inspect.getdoc(function(member)), inspect.getdoc(function(other))
            if _reworded(mine) != _reworded(theirs):
                differ.append(name)
    assert differ == []


def _reworded(doc: str | None) -> list[str]:
    return re.sub(r"\bAsync(?=[A-Z])", "", doc or "").split()


@each_pair
def test_both_are_documented(sync: type, twin: type) -> None:
    for each_class in (sync, twin):
        members = {name: function(member) for name, member in public(each_class).items()}
        assert [name for name, each in members.items() if each and not inspect.getdoc(each)] == []
