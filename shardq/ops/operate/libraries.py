"""Look at the libraries of functions that a node has loaded, load this version's, and remove others."""

from __future__ import annotations

from typing import Any

import msgspec

from shardq.clock import Clock
from shardq.errors import ShardqError
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.steps import Argument, Ask, Op, Refused
from shardq.protocol.library import PREFIX
from shardq.protocol.scripts import library


class LoadedLibrary(msgspec.Struct, frozen=True):
    """One of shardq's libraries on a node, and how many functions it has."""

    name: str
    functions: int


def loaded_libraries(clock: Clock, timeout: float) -> Op[list[LoadedLibrary]]:
    """Return shardq's libraries on the node, of all versions, in the order of their names. Waits *timeout* seconds."""
    listed = yield from _asked(clock, timeout, "FUNCTION", "LIST", "LIBRARYNAME", f"{PREFIX}*")
    found = []
    for each in listed:
        fields = dict(zip(each[::2], each[1::2], strict=True))
        found.append(LoadedLibrary(fields[b"library_name"].decode(), len(fields[b"functions"])))
    return sorted(found, key=lambda library: library.name)


def runs_library(clock: Clock, timeout: float) -> Op[bool]:
    """Return whether this version's library is loaded on the node, and this user may call its functions.

    The call lacks its key, so it fails before it does anything: its error shows who refused it.
    """
    try:
        yield from _asked(clock, timeout, "FCALL_RO", library().function("facts"), 0)
    except ShardqError as error:
        return isinstance(error.__cause__, Refused) and error.__cause__.code == "ERR"
    return True


def why_no_library(clock: Clock, timeout: float) -> Op[Refused | None]:
    """Return why this client cannot load a library on the node or call its functions; None if it can.

    It changes nothing: a text without a library is never loaded, but a refusal before it is read is reported.
    """
    for words in (("FUNCTION", "LOAD", "-"), ("FCALL", f"{PREFIX}none", 0)):
        try:
            yield from _asked(clock, timeout, *words)
        except ShardqError as error:
            refused = error.__cause__
            if not isinstance(refused, Refused):
                raise
            # ERR means that the server has read the command: this user may send it, and it is only the text that is
            # wrong.
            if refused.code != "ERR" and refused.text != "Function not found":
                return refused
            if refused.text.startswith("unknown command"):
                return refused
    return None


def load_library(clock: Clock, timeout: float) -> Op[bool]:
    """Load this version's library into the node. Return False if it is there already. Waits *timeout* seconds."""
    try:
        yield from _asked(clock, timeout, "FUNCTION", "LOAD", library().text, changes=True)
    except ShardqError as error:
        if isinstance(error.__cause__, Refused) and error.__cause__.text.endswith("already exists"):
            return False
        raise
    return True


def remove_library(name: str, clock: Clock, timeout: float) -> Op[bool]:
    """Remove the library called *name* from the node. Return False if there was none."""
    try:
        yield from _asked(clock, timeout, "FUNCTION", "DELETE", name, changes=True)
    except ShardqError as error:
        if isinstance(error.__cause__, Refused) and error.__cause__.text == "Library not found":
            return False
        raise
    return True


def _asked(clock: Clock, timeout: float, *words: Argument, changes: bool = False) -> Op[Any]:
    return retry_until(always(Ask(words, changes=changes)), clock.monotonic() + timeout, clock)
