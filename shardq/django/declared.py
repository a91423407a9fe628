"""One task's own settings: whose it is, and how often it is tried. It needs no Django."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from shardq.arguments import text
from shardq.backoff import Backoff
from shardq.tasks.task import Retries

F = TypeVar("F", bound=Callable[..., Any])
_ATTRIBUTE: Final = "__shardq__"


class Declared(msgspec.Struct, frozen=True):
    """The options of one task; None leaves them to the backend."""

    shard_key: str | None = None
    retries: int | None = None
    backoff: Backoff | None = None


NOTHING_DECLARED: Final = Declared()


def options(
    *, shard_key: str | None = None, retries: int | None = None, backoff: Backoff | None = None
) -> Callable[[F], F]:
    """Say how shardq treats a task. Put it below `@task`: other backends ignore it.

    *shard_key* is the name of the argument that says whose a call is. *retries* is how often the task is tried once
    more after an error, and *backoff* how many seconds later. ConfigError for a bad one.

    >>> @options(shard_key="tenant", retries=3)
    ... def send(tenant, to):
    ...     return f"mail to {to}"
    >>> send("acme", "ada")
    'mail to ada'
    """
    declared = Declared(None if shard_key is None else text("shard_key", shard_key), retries, backoff)
    Retries(retries=retries, backoff=backoff).check("a task")

    def declare(function: F) -> F:
        setattr(function, _ATTRIBUTE, declared)
        return function

    return declare


def declared_of(function: Callable[..., Any]) -> Declared:
    """Return what a task's function was declared with."""
    found = getattr(function, _ATTRIBUTE, NOTHING_DECLARED)
    return found if isinstance(found, Declared) else NOTHING_DECLARED
