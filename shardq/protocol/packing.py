"""Redis's wire format for commands: a count of words, then each word with its length. hiredis packs, in C."""

from __future__ import annotations

from typing import Final

import hiredis

from shardq.protocol.script import HASH, Form, Script

CACHED: Final = 16_384
"""So many keys are kept packed at most, and as many beginnings of commands."""

_KEYS: dict[str, bytes] = {}
_BEGINNINGS: dict[tuple[str, str], tuple[tuple[str, ...], bytes, bytes]] = {}


def pack(words: tuple[str | bytes | int | float, ...]) -> bytes:
    """Return the bytes of one command.

    No int may get to hiredis (3.5.0): it makes a str of it in C, and Python looks for signals while it does. If a
    handler raises there, as that of Ctrl-C does, hiredis goes on with the str that it did not get, and the process dies
    of SIGSEGV.
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


def pack_script(
    script: Script,
    form: Form,
    keys: tuple[str, ...],
    args: tuple[str | bytes | int | float, ...],
    packed: bytes = b"",
    more: int = 0,
) -> bytes:
    """Return the bytes of the command that runs *script* in this form. *packed* are *more* words that come last.

    The command's name, what it runs and the keys that the script names are those of earlier calls on the queue, so they
    are packed once. The other keys are packed once each: as they differ from call to call, more would not stay in the
    processor's caches.
    """
    named = len(script.keys)
    runs = script.sha if form is HASH else script.function
    known = _BEGINNINGS.get((runs, keys[0] if named else ""))
    if known is None or known[0] != keys[:named]:
        known = _pack_beginning(script, form, keys[:named])
    count = b"%d" % len(keys)
    return b"".join([
        b"*%d\r\n" % (3 + len(keys) + len(args) + more),
        known[1],
        b"$%d\r\n%b\r\n" % (len(count), count),
        known[2],
        *[_KEYS.get(key) or _pack_key(key) for key in keys[named:]],
        pack_words(args),
        packed,
    ])  # fmt: skip


def _pack_beginning(script: Script, form: Form, named: tuple[str, ...]) -> tuple[tuple[str, ...], bytes, bytes]:
    if len(_BEGINNINGS) >= CACHED:
        _BEGINNINGS.clear()
    words = script.command(form)
    known = named, pack_words(words), b"".join(map(_pack_key, named))
    _BEGINNINGS[words[1], named[0] if named else ""] = known
    return known


def _pack_key(key: str) -> bytes:
    if len(_KEYS) >= CACHED:
        _KEYS.clear()
    packed = _KEYS[key] = pack_words((key,))
    return packed
