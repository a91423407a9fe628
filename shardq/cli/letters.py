"""Dead letters as rows of a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from shardq.cli.grid import Column, grid
from shardq.cli.shell import Shell
from shardq.cli.text import bytes_fields, payload_fields, payload_text, shown_key
from shardq.cli.width import columns, wrapped
from shardq.model.wording import age

if TYPE_CHECKING:
    from shardq.model import DeadLetter

TABLE: Final = (
    Column("MESSAGE", begins=True),
    Column("TENANT", 6),
    Column("TRIES"),
    Column("DIED"),
    Column("TASK", 6),
    Column("ERROR", 12),
)


def lines(shell: Shell, letters: Sequence[DeadLetter], now: float, *, payloads: bool) -> list[str]:
    """Return a line on each; with *payloads* its whole error and payload below it."""
    told = grid(TABLE, (_row(each, now) for each in letters))
    if not payloads:
        return told
    found = told[:1]
    for each, line in zip(letters, told[1:], strict=True):
        found.append(line)
        if line.endswith("…"):
            found += _indented(f"error    {error_of(each)}")
        found += _indented(f"payload  {payload_text(shell.client.codecs, each.tag, each.body, each.fields)}")
    return found


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in wrapped(text, columns() - 2, indent=" " * 9)]


def _row(letter: DeadLetter, now: float) -> list[str]:
    return [
        letter.message_id,
        shown_key(letter.shard_key),
        f"{letter.count:,}",
        age(now - letter.died_at),
        letter.task or "-",
        error_of(letter),
    ]


def error_of(letter: DeadLetter) -> str:
    """The way it died, and the error: both may say the same."""
    if not letter.last_error or letter.last_error in letter.reason:
        return letter.reason
    return letter.last_error if letter.reason in letter.last_error else f"{letter.reason}: {letter.last_error}"


def fields_of(shell: Shell, letter: DeadLetter) -> dict[str, Any]:
    """One dead letter as JSON."""
    return {
        "message_id": letter.message_id,
        "entry_id": letter.entry_id,
        **bytes_fields("shard_key", letter.shard_key),
        "task": letter.task,
        "reason": letter.reason,
        "count": letter.count,
        "last_error": letter.last_error,
        "written_at": letter.written_at,
        "died_at": letter.died_at,
        "headers": dict(letter.headers),
        **payload_fields(shell.client.codecs, letter.tag, letter.body, letter.fields),
    }
