"""The spool: a file in which messages wait until a gateway has acked them.

It is a SQLite database with a write-ahead log, so what was put survives a SIGKILL at any point, and several processes
may put messages at once. Times are seconds since the epoch, for people only.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from shardq.clock import Clock, SystemClock
from shardq.errors import SpoolDamaged, SpoolFull

SCHEMA: Final = 1
OVERHEAD: Final = 64
"""Bytes that a message takes in the file besides its request, about."""
REFUSED_KEPT: Final = 1000
"""So many of the messages that a gateway refused are kept, the newest."""
WAIT: Final = 10.0
"""Seconds that a process waits while another one writes."""
READ, WRITE = "BEGIN", "BEGIN IMMEDIATE"

_TABLES = """
CREATE TABLE messages (seq INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB NOT NULL, request BLOB NOT NULL, at REAL);
CREATE UNIQUE INDEX by_id ON messages (id);
CREATE TABLE refused (seq INTEGER PRIMARY KEY, id BLOB, request BLOB, reason TEXT, text TEXT, at REAL);
CREATE TABLE counts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE kept (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO counts VALUES ('bytes', 0), ('waiting', 0), ('accepted', 0), ('acked', 0), ('refused', 0), ('dropped', 0);
"""


class Spooled(NamedTuple):
    """One message in the spool: its number, its id, and its serialized request."""

    seq: int
    id: bytes
    request: bytes


class SpoolCounts(NamedTuple):
    """What the spool holds, and what became of all that was ever put. `oldest_at` is when the oldest was put, or 0."""

    waiting: int
    bytes: int
    accepted: int
    acked: int
    refused: int
    dropped: int
    oldest_at: float


class Refused(NamedTuple):
    """A message that the gateway refused: it was taken out of the spool, and is kept for people to look at."""

    id: bytes
    request: bytes
    reason: str
    text: str
    at: float


class Spool:
    """An open spool. Any thread may call; another process has a `Spool` of its own on the same file."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int = 1024**3,
        drops_oldest: bool = False,
        on_disk: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.path, self._max_bytes, self._drops_oldest = Path(path), max_bytes, drops_oldest
        self._clock, self._lock, self._pid = clock or SystemClock(), threading.RLock(), os.getpid()
        try:
            self._db = sqlite3.connect(self.path, timeout=WAIT, isolation_level=None, check_same_thread=False)
            self._prepare(on_disk)
        except sqlite3.DatabaseError as error:
            raise self._failure(error) from None

    def put(self, messages: Sequence[tuple[bytes, bytes]]) -> int:
        """Add messages, (id, request) each, all or none. Return how many older ones were dropped for them.

        They are safe when this returns. SpoolFull if they do not fit, or the disk is full: nothing was added.
        """
        size = sum(len(request) + OVERHEAD for _, request in messages)
        now = self._clock.wall()
        with self._transaction(WRITE):
            dropped = self._make_room(size)
            self._db.executemany(
                "INSERT INTO messages (id, request, at) VALUES (?, ?, ?)", ((*each, now) for each in messages)
            )
            self._count(bytes=size, waiting=len(messages), accepted=len(messages))
        return dropped

    def after(self, seq: int, count: int, most_bytes: int) -> list[Spooled]:
        """Return the next messages behind number *seq*: at most *count*, and about *most_bytes*, but one if any."""
        found: list[Spooled] = []
        size = 0
        with self._transaction(READ):
            rows = self._db.execute(
                "SELECT seq, id, request FROM messages WHERE seq > ? ORDER BY seq LIMIT ?", (seq, count)
            )
            for row in rows:
                size += len(row[2])
                if found and size > most_bytes:
                    break
                found.append(Spooled(*row))
        return found

    def acked(self, seqs: Iterable[int]) -> None:
        """Remove messages that the gateway has acked. Messages that are gone already do not count."""
        with self._transaction(WRITE):
            self._count(acked=self._remove(seqs))

    def refuse(self, seq: int, reason: str, text: str) -> None:
        """Move a message that the gateway refused to those that people look at."""
        with self._transaction(WRITE):
            self._db.execute(
                "INSERT OR REPLACE INTO refused SELECT seq, id, request, ?, ?, ? FROM messages WHERE seq = ?",
                (reason, text, self._clock.wall(), seq),
            )
            self._count(refused=self._remove([seq]))
            self._db.execute(
                "DELETE FROM refused WHERE seq NOT IN (SELECT seq FROM refused ORDER BY at DESC, seq DESC LIMIT ?)",
                (REFUSED_KEPT,),
            )

    def refused(self) -> list[Refused]:
        """Return the refused messages that are kept, oldest first."""
        with self._transaction(READ):
            rows = self._db.execute("SELECT id, request, reason, text, at FROM refused ORDER BY at, seq")
            return [Refused(*row) for row in rows]

    def counts(self) -> SpoolCounts:
        """Return what the spool holds, in one look."""
        with self._transaction(READ):
            (oldest,) = self._db.execute("SELECT at FROM messages ORDER BY seq LIMIT 1").fetchone() or (0.0,)
            named = dict(self._db.execute("SELECT name, value FROM counts"))
        return SpoolCounts(**named, oldest_at=oldest)

    def keep(self, name: str, value: bytes) -> None:
        """Remember something by a name, beside the messages."""
        with self._transaction(WRITE):
            self._db.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (name, value))

    def kept(self, name: str) -> bytes | None:
        """Return what is remembered under a name."""
        with self._transaction(READ):
            row = self._db.execute("SELECT value FROM kept WHERE name = ?", (name,)).fetchone()
        return bytes(row[0]) if row else None

    def close(self) -> None:
        """Close the file. In a forked child nothing is done: SQLite's locks are the parent's."""
        if os.getpid() == self._pid:
            with self._lock:
                self._db.close()

    def _prepare(self, on_disk: bool) -> None:
        self._db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # has an effect on a new file only
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(f"PRAGMA synchronous = {'FULL' if on_disk else 'NORMAL'}")
        self._db.execute("PRAGMA journal_size_limit = 8388608")
        with self._transaction(WRITE):
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version == 0:
                for statement in _TABLES.split(";"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {SCHEMA}")
            elif version != SCHEMA:
                raise SpoolDamaged(f"spool {str(self.path)!r} is of version {version}, and this shardq knows {SCHEMA}")

    def _make_room(self, size: int) -> int:
        (held,) = self._db.execute("SELECT value FROM counts WHERE name = 'bytes'").fetchone()
        over = held + size - self._max_bytes
        if over <= 0:
            return 0
        if not self._drops_oldest or size > self._max_bytes:
            raise SpoolFull(
                f"spool {str(self.path)!r} holds {held:,} of {self._max_bytes:,} bytes: nothing was added; the gateway "
                "does not take messages as fast, or cannot be reached (see `shardq edge status`)"
            )
        freed, seqs = 0, []
        for seq, length in self._db.execute("SELECT seq, length(request) FROM messages ORDER BY seq"):
            seqs.append(seq)
            freed += length + OVERHEAD
            if freed >= over:
                break
        dropped = self._remove(seqs)
        self._count(dropped=dropped)
        return dropped

    def _remove(self, seqs: Iterable[int]) -> int:
        count = size = 0
        for seq in seqs:
            row = self._db.execute("DELETE FROM messages WHERE seq = ? RETURNING length(request)", (seq,)).fetchone()
            if row:
                count, size = count + 1, size + row[0] + OVERHEAD
        self._count(bytes=-size, waiting=-count)
        return count

    def _count(self, **changes: int) -> None:
        self._db.executemany(
            "UPDATE counts SET value = value + ? WHERE name = ?", ((by, name) for name, by in changes.items() if by)
        )

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[None]:
        """One look at the file, or one change of it, by several statements. If any fails, nothing was changed."""
        if os.getpid() != self._pid:
            raise SpoolDamaged("this spool was opened before a fork: open it in the child, after the fork")
        with self._lock:
            try:
                with self._db:  # at the end it commits, or rolls back
                    self._db.execute(begin)
                    yield
            except sqlite3.Error as error:
                raise self._failure(error) from None

    def _failure(self, error: sqlite3.Error) -> SpoolFull | SpoolDamaged:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        where = f"spool {str(self.path)!r}"
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            return SpoolFull(
                f"{where} cannot be written, since the disk is full or failed: nothing was added ({error})"
            )
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return SpoolFull(f"{where} was locked by another process for {WAIT:g} s: nothing was added; try again")
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return SpoolDamaged(f"{where} is damaged or no spool ({error}): move it away, and a new one is made")
        return SpoolDamaged(f"{where} cannot be used: {error}")
