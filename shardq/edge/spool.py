"""The spool: a file in which messages wait until a gateway has acked them.

A stored message survives a SIGKILL at any point, and several processes may put messages at once. A message that the
gateway does not take for now is *held*: it waits at its *place*, which names why and where, and is no more among those
that go out. Times are seconds since the epoch.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from shardq.clock import Clock, SystemClock
from shardq.edge.file import READ, ROWS_OF_STEP, STEP_BYTES, WRITE, Damaged, SpoolFile, mended
from shardq.edge.refusals import DAMAGED, DROPPED, SELECT, Refusals, Refused
from shardq.edge.salvage import recount
from shardq.edge.schema import OVERHEAD, checksum
from shardq.errors import SpoolFull

REFUSED_BYTES: Final = 64 * 1024 * 1024
FLIPPED: Final = "its bits have changed on the disk"


class Spooled(NamedTuple):
    """One message in the spool: its number, its id, and its serialized request."""

    seq: int
    id: bytes
    request: bytes


class SpoolPage(NamedTuple):
    """Some messages in their order. `resent` changes when refused ones wait again; `goes_out` counts all not held."""

    messages: list[Spooled]
    resent: int
    goes_out: int


class SpoolHold(NamedTuple):
    """Why a message is held, and at which place. `size` is that of its payload."""

    seq: int
    place: str
    size: int
    reason: str
    text: str


class Held(NamedTuple):
    """A `place` where `messages` are held: the `reason`, in words the `text`, and `since` when, in seconds since 1970.

    The first of them may have gone meanwhile. `Edge.status` returns them.
    """

    place: str
    reason: str
    text: str
    messages: int
    since: float


class SpoolCounts(NamedTuple):
    """The contents of the spool, and the fates of all that was ever put.

    `waiting` counts all that is neither acked nor refused, `held` those of them that the gateway does not take for now,
    `forgotten` what was refused or dropped and is not kept any more. `bytes` are those of the messages, `file_bytes`
    what the files take. `oldest_at` is when the oldest was put, or 0. Among all that were ever put, `accepted` messages
    came into the spool, `acked` were stored by the gateway, `refused` were refused for good, and `dropped` made room
    for others. `Edge.status` returns one.
    """

    waiting: int
    bytes: int
    held: int
    accepted: int
    acked: int
    refused: int
    dropped: int
    forgotten: int
    oldest_at: float
    file_bytes: int


class Fate(NamedTuple):
    """The fate of a message: it is waiting (perhaps held), or refused, or nobody knows any more, or it is stored."""

    is_waiting: bool = False
    held: str = ""
    refused: Refused | None = None
    is_forgotten: bool = False


class Spool:
    """An open spool. Any thread may call; another process has a `Spool` of its own on the same file."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int = 1024**3,
        max_refused_bytes: int = REFUSED_BYTES,
        drops_oldest: bool = False,
        on_disk: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._max_bytes, self._drops_oldest, self._clock = max_bytes, drops_oldest, clock or SystemClock()
        self.file = SpoolFile(path, on_disk=on_disk)
        # A quarter is the most, so that what was refused does not stop what is new.
        self.refusals = Refusals(self.file, self._clock, min(max_refused_bytes, max_bytes // 4))

    @property
    def path(self) -> Path:
        """The file."""
        return self.file.path

    @mended
    def put(self, messages: Sequence[tuple[bytes, bytes]]) -> range:
        """Add messages, (id, request) each, all or none, and return their numbers. They are safe when this returns.

        SpoolFull if they do not fit, or the disk is full: nothing was added.
        """
        now = self._clock.wall()
        size = sum(len(request) + OVERHEAD for _, request in messages)
        rows = [(message_id, request, now, checksum(message_id, request)) for message_id, request in messages]
        self.file.take_room()
        with self.file.transaction(WRITE) as db:
            db.executemany("INSERT INTO messages (id, request, at, sum) VALUES (?, ?, ?, ?)", rows)
            (last,) = db.execute("SELECT last_insert_rowid()").fetchone()
            numbers = range(last + 1 - len(messages), last + 1)
            db.execute(
                "UPDATE counts SET waiting = waiting + ?1, bytes = bytes + ?2, accepted = accepted + ?1",
                (len(messages), size),
            )
            self._fit(db, numbers.start)
        return numbers

    @mended
    def after(self, seq: int, count: int, most_bytes: int) -> SpoolPage:
        """Return the next messages behind number *seq*: at most *count*, and about *most_bytes*, but one if any.

        Those that are held are left out, and those whose bits have flipped are set aside.
        """
        while True:
            page, bad = self._page(seq, count, most_bytes)
            if not bad:
                return page
            self.refuse([(each, DAMAGED, FLIPPED) for each in bad])
            if page.messages:
                return page
            seq = bad[-1]

    def _page(self, seq: int, count: int, most_bytes: int) -> tuple[SpoolPage, list[int]]:
        """The next messages, and the numbers of those between them whose bits have flipped."""
        found, bad = list[Spooled](), list[int]()
        size, last = 0, seq
        with self.file.transaction(READ) as db:
            rows = db.execute(
                "SELECT seq, id, request, sum FROM messages WHERE seq > ? "
                "AND NOT EXISTS (SELECT 1 FROM held WHERE held.seq = messages.seq) ORDER BY seq LIMIT ?",
                (seq, count),
            )
            for number, message_id, request, total in rows:
                if number <= last:
                    raise Damaged(f"spool {str(self.path)!r} is damaged (its messages are in no order)")
                last = number
                if not _is_good(message_id, request, total):
                    bad.append(number)
                    continue
                size += len(request)
                if found and size > most_bytes:
                    break
                found.append(Spooled(number, message_id, request))
            resent, goes_out = db.execute("SELECT resent, waiting - held FROM counts").fetchone()
        return SpoolPage(found, resent, goes_out), bad

    @mended
    def acked(self, seqs: Collection[int]) -> set[int]:
        """Remove messages that the gateway has acked, `ROWS_OF_STEP` at a time. Return which were there.

        The others are gone already.
        """
        with self.file.transaction(WRITE) as db:
            gone = self._remove(db, seqs)
            db.execute("UPDATE counts SET acked = acked + ?", (len(gone),))
            self.file.make_way()
        return gone

    @mended
    def refuse(self, refusals: Sequence[tuple[int, str, str]]) -> None:
        """Take messages that nobody will store out: (number, reason, text) each. They are kept for people.

        If it fails, the first ones may be taken out; doing it again does the rest.
        """
        done = 0
        while done < len(refusals):
            with self.file.transaction(WRITE) as db:
                done += self._refuse(db, refusals[done : done + ROWS_OF_STEP])
        self.refusals.trim_all()

    @mended
    def hold(self, holds: Sequence[SpoolHold]) -> None:
        """Let messages wait at their places. Messages that were held before stay held since then.

        SpoolFull if the disk has no room to note it; the first ones may be held.
        """
        now = self._clock.wall()
        for start in range(0, len(holds), ROWS_OF_STEP):
            with self.file.transaction(WRITE) as db:
                for each in holds[start : start + ROWS_OF_STEP]:
                    before = db.execute("DELETE FROM held WHERE seq = ? RETURNING since", (each.seq,)).fetchone()
                    (since,) = before or (now,)
                    db.execute(
                        "INSERT INTO held SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE EXISTS "
                        "(SELECT 1 FROM messages WHERE seq = ?1)",
                        (*each, since),
                    )
                self.file.make_room()

    @mended
    def first_held(self, place: str) -> Spooled | None:
        """Return the smallest message that is held at a place, with which it is tried again."""
        while True:
            with self.file.transaction(READ) as db:
                row = db.execute(
                    "SELECT messages.seq, id, request, sum FROM held JOIN messages USING (seq) WHERE place = ? "
                    "ORDER BY held.size, seq LIMIT 1",
                    (place,),
                ).fetchone()
            if row is None or _is_good(*row[1:]):
                return Spooled(*row[:3]) if row else None
            self.refuse([(row[0], DAMAGED, FLIPPED)])

    @mended
    def release(self, place: str) -> bool:
        """Let some of the messages that are held at a place go out again. Return whether there are more."""
        with self.file.transaction(WRITE) as db:
            found = db.execute(
                "DELETE FROM held WHERE seq IN (SELECT seq FROM held WHERE place = ? LIMIT ?)", (place, ROWS_OF_STEP)
            )
            has_more = found.rowcount == ROWS_OF_STEP
            if not has_more and db.execute("SELECT 1 FROM places WHERE name = ?", (place,)).fetchone():
                recount(db)  # bits have flipped: other messages are there than are counted
            self.file.make_way()
        return has_more

    @mended
    def held(self) -> list[Held]:
        """Return the places at which messages are held."""
        with self.file.transaction(READ) as db:
            rows = db.execute("SELECT name, reason, text, messages, since FROM places").fetchall()
        if not all(map(_is_place, rows)):
            raise Damaged(f"spool {str(self.path)!r} is damaged (it holds messages at no place)")
        return [Held(*row) for row in rows]

    @mended
    def expire(self, before: float) -> int:
        """Refuse some messages that are held since *before*, with the reason for which they are. Return how many."""
        with self.file.transaction(WRITE) as db:
            rows = db.execute(
                "SELECT seq, CAST(reason AS TEXT), CAST(text AS TEXT) FROM held WHERE since < ? ORDER BY since LIMIT ?",
                (before, ROWS_OF_STEP),
            ).fetchall()
            count = self._refuse(db, rows) if rows else 0
        if count:
            self.refusals.trim_all()
        return count

    @mended
    def fate(self, seq: int) -> Fate:
        """Return what became of the message with number *seq*."""
        with self.file.transaction(READ) as db:
            if db.execute("SELECT 1 FROM messages WHERE seq = ?", (seq,)).fetchone():
                row = db.execute("SELECT reason, text FROM held WHERE seq = ?", (seq,)).fetchone()
                return Fate(is_waiting=True, held=f"{row[0]}: {row[1]}" if row else "")
            row = db.execute(f"{SELECT} WHERE seq = ? ORDER BY number DESC", (seq,)).fetchone()
            (forgotten,) = db.execute("SELECT forgotten_seq FROM counts").fetchone()
        return Fate(refused=Refused(*row)) if row else Fate(is_forgotten=seq <= forgotten)

    @mended
    def counts(self) -> SpoolCounts:
        """Return what the spool holds, in one look."""
        with self.file.transaction(READ) as db:
            row = db.execute("SELECT CAST(at AS REAL) FROM messages ORDER BY seq LIMIT 1").fetchone()
            numbers = db.execute(
                "SELECT waiting, bytes, held, accepted, acked, refused, dropped, forgotten FROM counts"
            )
            found = [*numbers.fetchone()]
        if not all(isinstance(each, int) and each >= 0 for each in found):
            raise Damaged(f"spool {str(self.path)!r} is damaged (its counts are no numbers)")
        found += [row[0] if row else 0.0, self.file.files()]
        return SpoolCounts(*found)

    @mended
    def check(self) -> None:
        """Look through the whole file, mend it if it is damaged, and count its contents again."""
        with self.file.transaction(READ) as db:  # it takes its time, and others put messages meanwhile
            (said,) = db.execute("PRAGMA quick_check(1)").fetchone()
        if said != "ok":
            raise Damaged(f"spool {str(self.path)!r} is damaged ({said})")
        with self.file.transaction(WRITE) as db:
            recount(db)

    @mended
    def shrink(self) -> bool:
        """Give a piece of what is free in the file back to the disk. Return whether there is more."""
        return self.file.shrink()

    @mended
    def keep(self, name: str, value: bytes | None) -> None:
        """Remember something by a name, beside the messages; None forgets it. SpoolFull."""
        with self.file.transaction(WRITE) as db:
            db.execute("DELETE FROM kept WHERE name = ?", (name,))
            if value is not None:
                db.execute("INSERT INTO kept VALUES (?, ?, ?)", (name, value, checksum(name.encode(), value)))
            self.file.make_room()

    @mended
    def kept(self, name: str) -> bytes | None:
        """Return what is remembered under a name; None if that is nothing, or damaged."""
        with self.file.transaction(READ) as db:
            row = db.execute("SELECT value, sum FROM kept WHERE name = ?", (name,)).fetchone()
        return row[0] if row and _is_good(name.encode(), *row) else None

    def close(self) -> None:
        """Close the file. In a forked child nothing is done: SQLite's locks are the parent's."""
        self.file.close()

    def _fit(self, db: sqlite3.Connection, first: int) -> None:
        """Within a transaction that added messages from number *first* on: see that they fit, or make room."""
        while (over := self.file.over(pages := self.file.pages(), self._max_bytes)) > 0:
            older = self._oldest(db, first, over) if self._drops_oldest else []
            if not older:
                raise SpoolFull(
                    f"spool {str(self.path)!r} has {self._max_bytes:,} bytes, and they are taken: nothing was added; "
                    "the gateway does not take messages as fast, or cannot be reached (see `shardq edge status`)"
                )
            for seq in older:
                self.refusals.add(db, seq, DROPPED, "the spool was full, and it was the oldest")
            self._remove(db, older)
            self.refusals.trim(db)
            db.execute("UPDATE counts SET dropped = dropped + ?", (len(older),))
        self.file.check_room(pages)

    def _oldest(self, db: sqlite3.Connection, first: int, size: int) -> list[int]:
        """The oldest messages before number *first* that take *size* bytes."""
        freed, found = 0, list[int]()
        for seq, length in db.execute("SELECT seq, length(request) FROM messages WHERE seq < ? ORDER BY seq", (first,)):
            found.append(seq)
            freed += length + OVERHEAD
            if freed >= size:
                break
        return found

    def _refuse(self, db: sqlite3.Connection, refusals: Sequence[tuple[int, str, str]]) -> int:
        """Refuse the first of these, as many as a step may copy. Return how many."""
        done = copied = 0
        for seq, reason, text in refusals:
            if copied >= STEP_BYTES:
                break
            copied += self.refusals.add(db, seq, reason, text)
            done += 1
        gone = self._remove(db, [seq for seq, _, _ in refusals[:done]])
        db.execute("UPDATE counts SET refused = refused + ?", (len(gone),))
        self.refusals.trim(db)
        self.file.make_way()
        return done

    def _remove(self, db: sqlite3.Connection, seqs: Iterable[int]) -> set[int]:
        gone, size = set[int](), 0
        (are_held,) = db.execute("SELECT EXISTS (SELECT 1 FROM held)").fetchone()
        for run in _runs(seqs):
            for seq, length in db.execute(
                "DELETE FROM messages WHERE seq BETWEEN ? AND ? RETURNING seq, length(request)", run
            ):
                gone.add(seq)
                size += length + OVERHEAD
            if are_held:
                db.execute("DELETE FROM held WHERE seq BETWEEN ? AND ?", run)
        db.execute("UPDATE counts SET waiting = waiting - ?, bytes = bytes - ?", (len(gone), size))
        return gone


def _runs(seqs: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and the last numbers of those that follow each other: a statement for each takes most time."""
    found: list[tuple[int, int]] = []
    for seq in sorted(seqs):
        if found and seq <= found[-1][1] + 1:
            found[-1] = found[-1][0], seq
        else:
            found.append((seq, seq))
    return found


def _is_place(row: tuple[object, ...]) -> bool:
    return all(isinstance(each, kind) for each, kind in zip(row, (str, str, str, int, float), strict=True))


def _is_good(message_id: object, request: object, total: object) -> bool:
    return isinstance(message_id, bytes) and isinstance(request, bytes) and checksum(message_id, request) == total
