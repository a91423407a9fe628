# ruff: noqa: S608 - the names of tables and columns are constants of this package
"""Saves what can be read of a damaged spool: the rows before and behind each part that SQLite makes no sense of."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Final

from shardq.edge.schema import ERRORS, OVERHEAD

COUNTS: Final = "accepted, acked, refused, dropped, forgotten, forgotten_seq, resent"
ROWS_AT_ONCE: Final = 16
"""Rows that are in memory at a time: each may be of 4 MiB."""
NEAR_NUMBERS: Final = 1000
"""Numbers behind a row that are looked up one by one, also those that are free; behind them the end of what is damaged
is searched for."""
MAX_NAMED: Final = 100_000
"""Messages that cannot be read and are named one by one, the newest."""


@dataclass(slots=True)
class Salvaged:
    """How many messages were saved, of how many, and the ranges of numbers under which none can be read any more."""

    saved: int = 0
    unreadable: list[range] = field(default_factory=list)
    waiting: int | None = None

    @property
    def lost(self) -> int:
        """How many messages could not be read: about, if the count of them is damaged, too."""
        most = sum(len(each) for each in self.unreadable)
        return most if self.waiting is None else max(0, self.waiting - self.saved)

    def text(self) -> str:
        """Say for people what was saved."""
        lost = "nobody knows how many" if self.waiting is None else f"{self.lost:,}"
        found = f"{self.saved:,} waiting messages were saved, {lost} could not be read"
        if self.unreadable:
            found += f" (of the numbers {', '.join(f'{each[0]} to {each[-1]}' for each in self.unreadable[:5])})"
        return found


def salvage(old: sqlite3.Connection, new: sqlite3.Connection) -> Salvaged:
    """Copy what can be read of the *old* spool into the tables of a *new* one. Errors are those of the new one."""
    found, refused = Salvaged(), list[range]()
    old.text_factory = lambda raw: raw.decode("utf-8", "replace")
    _copy_counts(old, new, found)
    for name, columns in (
        ("kept", "rowid, name, value, sum"),
        ("held", "seq, place, size, reason, text, since"),
        ("refused", "number, seq, id, request, reason, text, at, sum"),
    ):
        _copy(new, name, columns, _readable(old, name, columns, refused if name == "refused" else []))
    columns = "seq, id, request, at, sum"
    found.saved = _copy(new, "messages", columns, _readable(old, "messages", columns, found.unreadable))
    _name(new, found)
    _forget(new, refused)
    new.execute("DELETE FROM held WHERE seq NOT IN (SELECT seq FROM messages)")
    recount(new)
    if found.waiting is None:
        _count_known(new)
    return found


def recount(db: sqlite3.Connection) -> None:
    """Count the rows of the tables again. Messages that are held at no place any more go out again."""
    db.execute("DELETE FROM held WHERE typeof(place) != 'text'")
    db.execute("DELETE FROM places")
    db.execute(
        "INSERT INTO places SELECT place, coalesce(CAST(reason AS TEXT), ''), coalesce(CAST(text AS TEXT), ''), "
        "count(*), coalesce(CAST(min(since) AS REAL), 0.0) FROM held GROUP BY place"
    )
    db.execute(
        "UPDATE counts SET waiting = (SELECT count(*) FROM messages), held = (SELECT count(*) FROM held), "
        f"bytes = (SELECT coalesce(sum(length(request) + {OVERHEAD}), 0) FROM messages), "
        f"refused_bytes = (SELECT coalesce(sum(length(request) + {OVERHEAD}), 0) FROM refused)"
    )


def _copy_counts(old: sqlite3.Connection, new: sqlite3.Connection, found: Salvaged) -> None:
    try:
        row = old.execute(f"SELECT waiting, {COUNTS} FROM counts").fetchone()
    except ERRORS:
        return
    if row and all(isinstance(each, int) and each >= 0 for each in row):
        found.waiting = row[0]
        new.execute(f"UPDATE counts SET ({COUNTS}) = (?, ?, ?, ?, ?, ?, ?)", row[1:])


def _count_known(new: sqlite3.Connection) -> None:
    """Without the counts, the rows are all that anybody knows of: each of these was accepted."""
    new.execute("UPDATE counts SET refused = (SELECT count(*) FROM refused)")
    new.execute("UPDATE counts SET accepted = waiting + refused")


def _copy(new: sqlite3.Connection, table: str, columns: str, rows: Iterator[tuple[Any, ...]]) -> int:
    places = ", ".join("?" for _ in columns.split(","))
    return new.executemany(f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({places})", rows).rowcount


def _name(new: sqlite3.Connection, found: Salvaged) -> None:
    """Set what cannot be read aside by its numbers, so that nobody takes it for stored."""
    if not found.lost:
        found.unreadable.clear()
    text = "the spool's file was damaged here: this message was not read, if it had not been acked before"
    numbers = chain.from_iterable(reversed(each) for each in reversed(found.unreadable))
    new.executemany(
        "INSERT INTO refused (seq, id, request, reason, text, at, sum) VALUES (?, x'', x'', 'DAMAGED', ?, "
        "unixepoch(), 0)",
        ((seq, text) for seq in islice(numbers, MAX_NAMED)),
    )
    new.execute("UPDATE counts SET refused = refused + ?", (found.lost,))


def _forget(new: sqlite3.Connection, refused: list[range]) -> None:
    """Count the refusals that cannot be read. Any message so far may have been one of them: nobody knows."""
    if count := sum(len(each) for each in refused):
        new.execute(
            "UPDATE counts SET forgotten = forgotten + ?, forgotten_seq = "
            "max((SELECT coalesce(max(seq), 0) FROM messages), (SELECT coalesce(max(seq), 0) FROM refused))",
            (count,),
        )


def _readable(db: sqlite3.Connection, table: str, columns: str, bad: list[range]) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a table by their numbers, and append the numbers between that cannot be read to *bad*."""
    last, near, top = 0, NEAR_NUMBERS, _top(db, table)
    select = f"SELECT {columns} FROM {table} WHERE rowid"
    while True:
        rows, is_sound = _next(db, select, last, ROWS_AT_ONCE)
        for row in rows:
            last, near = row[0], row[0] + NEAR_NUMBERS
            yield row
        if is_sound and not rows:
            return
        while not is_sound:  # one number after the other, until there is one that can be looked up
            if last >= top:
                return
            if last >= near:
                end = _end(db, select, last, top)
                _add(bad, range(last + 1, end + 1))
                last, near = end, end + NEAR_NUMBERS
                break
            last += 1
            rows, is_sound = _some(db, f"{select} = ?", last)
            if is_sound:
                yield from rows
            else:
                _add(bad, range(last, last + 1))


def _add(ranges: list[range], more: range) -> None:
    """Append a range of numbers, or make the last range longer that ends where it begins."""
    if ranges and ranges[-1].stop == more.start:
        more = range(ranges.pop().start, more.stop)
    ranges.append(more)


def _end(db: sqlite3.Connection, select: str, last: int, top: int) -> int:
    """The number from which on the next rows can be read; *last* is one from which they cannot. *top* if none can."""
    good, stride = last, NEAR_NUMBERS
    while good < top:
        good, stride = min(top, good + stride), 2 * stride
        if _next(db, select, good, 1)[1]:
            break
        last = good
    while good - last > 1:
        middle = (last + good) // 2
        if _next(db, select, middle, 1)[1]:
            good = middle
        else:
            last = middle
    return good


def _next(db: sqlite3.Connection, select: str, last: int, count: int) -> tuple[list[tuple[Any, ...]], bool]:
    """The rows behind a number, and whether all that were asked for could be read, with numbers that can be."""
    rows, is_sound = _some(db, f"{select} > ? ORDER BY rowid LIMIT {count}", last)
    for at, row in enumerate(rows):
        if not isinstance(row[0], int) or row[0] <= last:
            return rows[:at], False
        last = row[0]
    return rows, is_sound


def _some(db: sqlite3.Connection, statement: str, number: int) -> tuple[list[tuple[Any, ...]], bool]:
    """Some rows, and whether all that were asked for could be read."""
    found: list[tuple[Any, ...]] = []
    try:
        found.extend(db.execute(statement, (number,)))
    except ERRORS:
        return found, False
    return found, True


def _top(db: sqlite3.Connection, table: str) -> int:
    """The largest number that a row may have."""
    for question in (
        f"SELECT rowid FROM {table} WHERE ?1 != '' ORDER BY rowid DESC LIMIT 1",
        "SELECT seq FROM sqlite_sequence WHERE name = ?1",
    ):
        try:
            (found,) = db.execute(question, (table,)).fetchone() or (None,)
        except ERRORS:
            continue
        if isinstance(found, int):
            return found
    return 0
