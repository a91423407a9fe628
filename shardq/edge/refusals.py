"""A spool's record of messages that nobody stored: refused by the gateway, damaged, or dropped for newer ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

from shardq.clock import Clock
from shardq.edge.file import READ, ROWS_OF_STEP, STEP_BYTES, WRITE, Damaged, SpoolFile, mended
from shardq.edge.schema import OVERHEAD, checksum
from shardq.errors import PartlyDone, SpoolFull

DAMAGED: Final = "DAMAGED"
DROPPED: Final = "DROPPED"
FORGOTTEN: Final = "no longer kept"
SELECT: Final = """SELECT CAST(id AS BLOB), CAST(request AS BLOB), CAST(reason AS TEXT), CAST(text AS TEXT),
CAST(at AS REAL), number FROM refused"""
"""Bits that have flipped may make a value one of another type."""
TRIMMED: Final = 2 * ROWS_OF_STEP
"""Refusals that are forgotten at once: more than are added at once."""
MAX_NAMED: Final = 10
"""Ids that are named in an error; the rest is counted."""


class Refused(NamedTuple):
    """A message that was taken out of the spool without being stored. `number` grows with each of a spool.

    `Edge.refused` returns them: the `id`, the `request` as it was to be sent, the `reason` in one word and its `text`,
    and `at` which time it was, in seconds since 1970.
    """

    id: bytes
    request: bytes
    reason: str
    text: str
    at: float
    number: int


class Losses(NamedTuple):
    """The refusals since some moment: how many by each reason, some ids, and the text of the last one."""

    reasons: dict[str, int]
    ids: list[str]
    text: str


class Moment(NamedTuple):
    """A moment in the life of a spool: the refusals so far."""

    number: int
    forgotten: int


class Refusals:
    """The refused messages of a spool, within *max_bytes*: the oldest go first, and are counted."""

    def __init__(self, file: SpoolFile, clock: Clock, max_bytes: int) -> None:
        self.file, self._clock, self._max_bytes = file, clock, max_bytes

    def add(self, db: sqlite3.Connection, seq: int, reason: str, text: str) -> int:
        """Copy a waiting message, within a transaction that removes it. Return how many bytes were copied.

        One that was dropped is kept by its id only.
        """
        row = db.execute(
            "INSERT INTO refused (seq, id, request, reason, text, at, sum) "
            "SELECT seq, CAST(id AS BLOB), iif(?1 = ?2, x'', CAST(request AS BLOB)), ?1, ?3, ?4, sum "
            "FROM messages WHERE seq = ?5 RETURNING length(request)",
            (reason, DROPPED, text, self._clock.wall(), seq),
        ).fetchone()
        if row is None:
            return 0
        size: int = row[0] + OVERHEAD
        db.execute("UPDATE counts SET refused_bytes = refused_bytes + ?", (size,))
        return size

    def trim_all(self) -> None:
        """Forget the oldest ones until the bound is kept."""
        while True:
            with self.file.transaction(WRITE) as db:
                if not self.trim(db):
                    return

    def trim(self, db: sqlite3.Connection) -> bool:
        """Forget some of the oldest ones beyond the bound, within a transaction. Return whether there are more."""
        (held,) = db.execute("SELECT refused_bytes FROM counts").fetchone()
        if not isinstance(held, int):
            raise Damaged(f"spool {str(self.file.path)!r} is damaged (its counts are no numbers)")
        for _ in range(TRIMMED):
            if held <= self._max_bytes:
                return False
            row = db.execute(
                "DELETE FROM refused WHERE number = (SELECT min(number) FROM refused) RETURNING seq, length(request)"
            ).fetchone()
            if row is None:
                return False
            held -= row[1] + OVERHEAD
            db.execute(
                "UPDATE counts SET refused_bytes = ?, forgotten = forgotten + 1, forgotten_seq = max(forgotten_seq, ?)",
                (held, row[0]),
            )
        return bool(held > self._max_bytes)

    @mended
    def kept(self, message_id: bytes | None = None) -> list[Refused]:
        """Return the refused messages that are kept, oldest first, or those with one id."""
        with self.file.transaction(READ) as db:
            rows = db.execute(
                f"{SELECT} WHERE ?1 IS NULL OR id = ?1 ORDER BY number",
                (message_id,),
            )
            return [Refused(*row) for row in rows]

    @mended
    def now(self) -> Moment:
        """Return the present moment, for `since`."""
        with self.file.transaction(READ) as db:
            (number,) = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'refused'").fetchone() or (0,)
            (forgotten,) = db.execute("SELECT forgotten FROM counts").fetchone()
            return Moment(number, forgotten)

    @mended
    def since(self, moment: Moment) -> Losses:
        """Return what was refused after *moment*, and was not sent again."""
        with self.file.transaction(READ) as db:
            reasons = dict(
                db.execute(
                    "SELECT CAST(reason AS TEXT), count(*) FROM refused WHERE number > ? GROUP BY 1", (moment.number,)
                )
            )
            rows = db.execute(
                "SELECT lower(hex(id)), CAST(text AS TEXT) FROM refused WHERE number > ? ORDER BY number LIMIT ?",
                (moment.number, MAX_NAMED),
            ).fetchall()
            (forgotten,) = db.execute("SELECT forgotten FROM counts").fetchone()
            (first,) = db.execute("SELECT coalesce(min(number), 0) FROM refused").fetchone()
        if forgotten > moment.forgotten and (first == 0 or first > moment.number + 1):
            reasons[FORGOTTEN] = forgotten - moment.forgotten
        return Losses(reasons, [row[0] for row in rows], rows[-1][1] if rows else "")

    def resend(self, ids: Collection[bytes] | None = None, reason: str | None = None) -> int:
        """Let refused messages wait again: those with *ids*, or of one *reason*, or all. Return how many.

        Damaged ones, or those with only the id known, stay. PartlyDone if the disk is full when some wait again
        already, SpoolFull if none does.
        """
        wanted = None if ids is None else frozenset(ids)
        last, top, done = 0, self.now().number, 0  # what is refused meanwhile stays
        while last < top:
            try:
                last, count = self._resend_some(last, top, wanted, reason)
            except SpoolFull as error:
                if done:
                    raise PartlyDone(f"{done:,} messages wait again, and the others not yet: {error}", done) from error
                raise
            done += count
        return done

    @mended
    def _resend_some(self, last: int, top: int, ids: Collection[bytes] | None, reason: str | None) -> tuple[int, int]:
        """Let some wait again, with numbers behind *last* up to *top*. Return the last number, and how many did."""
        found, size = list[Any](), 0
        with self.file.transaction(WRITE) as db:
            for row in db.execute(
                "SELECT number, seq, id, request, at, sum FROM refused WHERE number > ?3 AND number <= ?4 "
                "AND length(request) > 0 AND reason != ?1 AND (?2 IS NULL OR reason = ?2) ORDER BY number",
                (DAMAGED, reason, last, top),
            ):
                if ids is None or row[2] in ids:
                    found.append(row)
                    size += len(row[3])
                if len(found) == ROWS_OF_STEP or size >= STEP_BYTES:
                    break
            count = sum(self._wait_again(db, row) for row in found)
            self.file.make_room()
        return (found[-1][0] if len(found) == ROWS_OF_STEP or size >= STEP_BYTES else top), count

    def _wait_again(self, db: sqlite3.Connection, row: tuple[int, int, bytes, bytes, float, int]) -> bool:
        number, seq, message_id, request, at, total = row
        if checksum(message_id, request) != total:
            db.execute("UPDATE refused SET reason = ? WHERE number = ?", (DAMAGED, number))
            return False
        db.execute("DELETE FROM refused WHERE number = ?", (number,))  # first, so that its room is used again
        db.execute("INSERT INTO messages VALUES (?, ?, ?, ?, ?)", (seq, message_id, request, at, total))
        size = len(request) + OVERHEAD
        db.execute(
            "UPDATE counts SET waiting = waiting + 1, bytes = bytes + ?1, refused = refused - 1, "
            "refused_bytes = refused_bytes - ?1, resent = resent + 1",
            (size,),
        )
        return True


def ids_of(texts: Iterable[str]) -> list[bytes]:
    """Return ids from their texts. ValueError."""
    return [bytes.fromhex(text) for text in texts]
