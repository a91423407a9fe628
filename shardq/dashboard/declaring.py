"""The file that declares queues (`shardq apply`), and how queues differ from it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from shardq.dashboard import numbers
from shardq.dashboard.source import SceneSource
from shardq.declared import Change, Declaration, DeclaredQueue, Found, of_queue, of_router, parsed
from shardq.errors import BackendError, ConfigError, ShardqError
from shardq.files import MIB, read_file, shortened
from shardq.routing import Binding

MAX_FILE: Final = 8 * MIB
"""Bytes of the file."""
FILE_AGE: Final = 10.0
"""Seconds after which it is read again."""


class File(NamedTuple):
    """The file's declarations, or why they cannot be known. Without a path, no file was named."""

    path: Path | None = None
    declaration: Declaration | None = None
    problem: str = ""

    def queue(self, name: str) -> DeclaredQueue | None:
        """Return what it declares of a queue; None if it does not name that."""
        queues = self.declaration.queues if self.declaration else ()
        return next((each for each in queues if each.name == name), None)

    def settings_of(self, name: str) -> Mapping[str, Any]:
        """Return the settings that it names of a queue."""
        found = self.queue(name)
        return found.settings if found else {}


class Compared(NamedTuple):
    """The differences of a queue from the file. `problem` says why it cannot become what the file declares."""

    changes: tuple[Change, ...] = ()
    is_declared: bool = False
    problem: str = ""

    @property
    def lines(self) -> list[tuple[str, str]]:
        """Each difference: its subject, and a line of it."""
        return [(change.what, line) for change in self.changes for line in change.lines]


async def file_of(source: SceneSource) -> File:
    """Return what the file says now."""
    path = source.declared
    return File() if path is None else await source.shared(("file",), lambda: _read(path), fresh=FILE_AGE)


async def _read(path: Path) -> File:
    try:
        raw = await asyncio.to_thread(read_file, path, MAX_FILE, "the file")
        return File(path, parsed(raw))
    except ConfigError as error:  # where the file lies is no matter of those who look
        return File(path, None, str(error).replace(repr(shortened(str(path))), repr(path.name)))


async def compared(source: SceneSource, name: str, file: File, fresh: float = numbers.CALM_FRESH_SECONDS) -> Compared:
    """Return how a queue that exists differs from the file. NotThere if it does not exist."""
    declared = file.queue(name)
    if declared is None or file.declaration is None:
        return Compared()
    queue = source.client.queue(name, create=False)
    assigned = await numbers.of_queue(source, "assignment", name, queue.assignment, fresh)
    settings, controls = await numbers.settings(source, name, fresh), await numbers.controls(source, name, fresh)
    found = Found(settings, controls, assigned)
    try:
        changes = [*of_queue(source.client, declared, found)]
    except BackendError:
        raise
    except ShardqError as error:
        return Compared(is_declared=True, problem=str(error))
    for router, bindings in file.declaration.bindings.items():
        wanted = frozenset(each for each in bindings if each.queue == name)
        changes += of_router(source.client, router, wanted, await _bindings(source, router), {name})
    return Compared(tuple(changes), is_declared=True)


async def _bindings(source: SceneSource, router: str) -> list[Binding]:
    async def ask() -> list[Binding]:
        return list((await source.client.router(router)).bindings())

    return await source.shared(("bindings", router), ask, fresh=numbers.CALM_FRESH_SECONDS)
