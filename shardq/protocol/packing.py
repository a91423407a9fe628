"""Redis's wire format for commands: a count of words, then each word with its length. hiredis packs, in C."""

from __future__ import annotations

from typing import Final, NamedTuple

import hiredis

from shardq.protocol.keys import MAX_PLAIN_KEYS
from shardq.protocol.script import Form, Script

MAX_CACHED: Final = 16_384
"""Keys that are kept packed, and as many beginnings of commands."""


def pack(words: tuple[str | bytes | int | float, ...]) -> bytes:
    """Return the bytes of one command.

    No int may get to hiredis (3.5.0): it makes a str of it in C, and Python looks for signals while it does. If a
    handler raises there, as that of Ctrl-C does, hiredis continues with the str that it did not get, and the process
    dies of SIGSEGV.
    """
    safe = tuple([str(word) if isinstance(word, int) else word for word in words])
    packed: bytes = hiredis.pack_command(safe)  # type: ignore[arg-type, assignment, unused-ignore] # stubs lie
    return packed


class Packer:
    """Packs what redis-py itself sends when it connects, some of it numbers, such as that of the database."""

    def pack(self, name: str, *words: str | bytes | float) -> list[bytes]:
        """Return the bytes of one command. redis-py may give two words of it in one *name*."""
        return [pack((*name.split(), *words))]


def pack_words(words: tuple[str | bytes | int | float, ...]) -> bytes:
    """Return the bytes of some words of a command."""
    packed = pack(words)
    return packed[packed.index(b"\n") + 1 :]


class PackedKeys(dict[str, bytes]):
    """Keys as words of a command. They are packed once each: a client names the same ones again and again."""

    def __missing__(self, key: str) -> bytes:
        """Pack it."""
        if len(self) >= MAX_CACHED:
            self.clear()
        word = self[key] = pack_words((key,))
        return word


PACKED_KEYS: Final = PackedKeys()


class Beginning(NamedTuple):
    """The words with which the calls of a script on one queue begin: what runs it, and the keys that it names."""

    named: tuple[str, ...]
    runs: bytes
    keys: bytes


class Beginnings(dict[tuple[str, str, int], Beginning]):
    """The beginnings of calls, by what runs them, by the first key, and by how many keys are named."""

    def add(self, script: Script, form: Form, named: tuple[str, ...]) -> Beginning:
        """Return the beginning of calls of *script* in this form on the queue with the *named* keys."""
        if len(self) >= MAX_CACHED:
            self.clear()
        words = script.command(form)
        known = Beginning(named, pack_words(words), b"".join([PACKED_KEYS[key] for key in named]))
        self[words[1], named[0] if named else "", len(named)] = known
        return known


BEGINNINGS: Final = Beginnings()


def forget(script: Script, named: tuple[str, ...]) -> None:
    """Forget what was packed for a call of *script* with the *named* keys, which nobody will name again."""
    for runs in (script.function, script.sha):
        for count in (len(named), MAX_PLAIN_KEYS):
            BEGINNINGS.pop((runs, named[0], count), None)
    for key in named:
        PACKED_KEYS.pop(key, None)
