"""The screen of failures: since when, how often, for how many tenants, and the command that mends it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from typing import Final

from shardq.cli.grid import Column, grid, listing
from shardq.cli.text import shown_key
from shardq.cli.width import columns, cut, width, wrapped
from shardq.model.failure import Failure
from shardq.model.wording import age, number, plural, short_moment, short_number
from shardq.outlook.failing import RATE, Kind, error_of, kind_of, lately
from shardq.outlook.sentence import joined

TABLE: Final = (
    Column("TASK", 12),
    Column("ERROR", 12),
    Column("10 MIN"),
    Column("RETRIED"),
    Column("DEAD"),
    Column("SINCE", begins=True),
    Column("LAST"),
)
MAX_NAME: Final = 40
"""Columns of a name in a line of details."""


def lines(
    failures: Sequence[Failure], fails: Collection[Kind], now: float, *, queue: str, most: int | None = None
) -> list[str]:
    """Return what *fails* now, a line on each group, and the command that moves dead letters back."""
    told = [*wrapped(sentence(failures, fails, now)), *grid(TABLE, (_row(each, now) for each in failures[:most]))]
    if most is not None and len(failures) > most:
        told.append(f"... and {plural(len(failures) - most, 'group')} more: --limit")
    return [*told, *mending(failures, fails, queue)]


def sentence(failures: Sequence[Failure], fails: Collection[Kind], now: float) -> str:
    """Return what *fails* now, in the words of the verdict; else what failed before."""
    return joined(lately(failures, fails, now))[0]


def _row(failure: Failure, now: float) -> list[str]:
    return [
        failure.task or "-",
        error_of(failure),
        short_number(failure.recent),
        short_number(failure.retried),
        short_number(failure.dead),
        short_moment(failure.first, now),
        age(now - failure.last),
    ]


def mending(failures: Sequence[Failure], fails: Collection[Kind], queue: str) -> list[str]:
    """Return the command for the dead letters of the group that has most of them and is none that *fails* now."""
    dead = sorted((each for each in failures if each.dead), key=lambda each: (kind_of(each) in fails, -each.dead))
    if not dead:
        return []
    first = dead[0]
    words = ["shardq", "redrive", queue, *_filter(first, failures), "--rate", str(RATE)]
    command = " ".join(map(shlex.quote, words))
    remark = f"# {plural(first.dead, 'dead letter')}" + ("; it still fails" if kind_of(first) in fails else "")
    if not all(word.isprintable() for word in words) or width(command) > columns():
        return wrapped(f"{remark}: shardq redrive --help tells how to send them again", indent="# ")
    for gap in ("    ", "  "):
        if width(command + gap + remark) <= columns():
            return [command + gap + remark]
    return [command, remark]


def _filter(failure: Failure, failures: Sequence[Failure]) -> list[str]:
    """The words that select this group alone, as far as there are such."""
    words = []
    if failure.error_type:
        words += _option("error", failure.error_type)
    else:
        words += _option("reason", failure.reason)
    alike = [each for each in failures if each.dead and error_of(each) == error_of(failure)]
    return [*_option("task", failure.task), *words] if len(alike) > 1 and failure.task else words


def _option(name: str, value: str) -> list[str]:
    return [f"--{name}={value}"] if value.startswith("-") else [f"--{name}", value]


def details(failure: Failure, now: float) -> list[str]:
    """Return what else is known of one group: who has it, the newest message, the traceback of the newest."""
    tenants = ", ".join(cut(shown_key(each), MAX_NAME) for each in failure.tenants)
    more = failure.tenants_lately - len(failure.tenants)
    told = listing(
        [
            ("tenants", f"{tenants}{f' and about {number(more)} more' if more > 0 else ''}"),
            ("newest", f"{cut(failure.newest, MAX_NAME)}, {age(now - failure.last)} ago"),
            ("last hour", f"{' '.join(map(short_number, failure.minutes))}, each 5 min"),
        ]
    )
    for line in failure.trace.splitlines():
        told += wrapped(line, indent="    ") if line.strip() else []
    return told
