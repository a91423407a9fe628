"""The file of a spool: a SQLite database with a write-ahead log, opened, guarded, and mended where it can be.

It is for its owner only. Room for the log is taken when the file is opened, and kept while it is closed by a file
beside it, so messages can be removed on a disk that has no room at all. A file that another process replaces, because
it was damaged, is opened again before the next change.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from shardq.clock import SystemClock
from shardq.edge.salvage import Salvaged, salvage
from shardq.edge.schema import APPLICATION, COUNTING, ERRORS, PAGE_BYTES, SCHEMA, TABLES
from shardq.edge.version_one import bring_up_to_date, is_version_one
from shardq.errors import ConfigError, SpoolDamaged, SpoolFull
from shardq.files import is_foreign
from shardq.platforms import posix

with posix("the spool of an edge producer"):
    import fcntl

log = logging.getLogger("shardq")
_CLOCK = SystemClock()
P = ParamSpec("P")
T = TypeVar("T")

LOCK_SECONDS: Final = 10.0
"""Seconds that a process waits while another one writes."""
LOOK_INTERVAL: Final = 0.01
LOG_BYTES: Final = 4 * 1024 * 1024
"""Room for the log that is always there: enough to remove messages until the file can shrink."""
CHECKPOINT_PAGES: Final = 256
"""Pages in the log after which it is moved to the database. At most about as many are not in it yet."""
ROWS_OF_STEP: Final = 128
"""Rows that one transaction changes, at most: the log has room for it on a full disk."""
STEP_BYTES: Final = 256 * 1024
"""A step that copies messages ends behind the one with which it has copied this many bytes."""
SPARE_PAGES: Final = 256
"""Free pages that stay in the file for the messages that come next."""
PAGES_GIVEN_BACK: Final = 256
"""Pages that are given back at a time. Each may be moved first, so three times as many may come into the log."""
READ, WRITE = "BEGIN", "BEGIN IMMEDIATE"
SIDES: Final = ("", "-wal", "-shm", ".lock")
PASSING_SUFFIXES: Final = ("-journal", "-reserve", ".salvaging", ".salvaged")
"""Files that are there at times."""
_DAMAGE_CODES: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_CUT_OFF: Final = frozenset({sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS})


class Replaced(Exception):
    """Another process has put a new file in the place of this one."""


class Damaged(SpoolDamaged):
    """The file is a spool, and SQLite cannot make sense of a part of it."""


class HasFile(Protocol):
    """An object with a `SpoolFile`."""

    file: SpoolFile


def mended(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Let a method that uses the file be tried again when the file had to be mended, or was by another process."""

    @functools.wraps(method)
    def again(self: HasFile, /, *args: P.args, **named: P.kwargs) -> T:
        try:
            return method(self, *args, **named)
        except (Damaged, Replaced):
            self.file.mend()
            return method(self, *args, **named)

    return again


class SpoolFile:
    """An open spool file. Any thread may use it; another process has one of its own."""

    def __init__(self, path: str | os.PathLike[str], *, on_disk: bool) -> None:
        self.path = Path(path).resolve()  # of two names for one file only one has the log beside it
        if os.path.isdir(self.path):  # noqa: PTH112 (that of Path raises where it may not look)
            raise ConfigError(f"the spool {str(self.path)!r} is a folder: name a file in it")
        self._name, self._folder = str(self.path), str(self.path.parent)
        self.pid, self.lock = os.getpid(), threading.RLock()
        self._on_disk, self._size, self._inode = on_disk, 0, 0
        self.has_room = False
        with self._guard():
            self._open()

    @contextmanager
    def transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        """One look at the file, or one change of it, by several statements. If any fails, nothing was changed."""
        if os.getpid() != self.pid:
            raise SpoolDamaged("this spool was opened before a fork: open it in the child, after the fork")
        with self.lock:
            try:
                with self.db:  # at the end it commits, or rolls back
                    self.db.execute(begin)
                    self._check_place()
                    yield self.db
            except ERRORS as error:
                raise self.failure(error) from None

    def _check_place(self) -> None:
        try:
            found = os.stat(self._name)  # noqa: PTH116 - each message passes here, and a Path takes five times as long
        except FileNotFoundError:
            raise Replaced from None
        if found.st_ino != self._inode:
            raise Replaced
        self._size = found.st_size

    # --- room ---

    def over(self, pages: int, most: int) -> int:
        """Return by how many bytes a database of this many *pages*, and the log, exceed *most*."""
        over = pages * PAGE_BYTES + LOG_BYTES - most
        if over > 0:
            (free,) = self.pragma("freelist_count")
            over -= free * PAGE_BYTES
        return over

    def pages(self) -> int:
        """Return how many pages the database has. Within a transaction."""
        (pages,) = self.pragma("page_count")
        return pages

    def _growth(self) -> int:
        """Bytes by which the database will grow when all that is in the log is moved to it. Within a transaction."""
        return self.pages() * PAGE_BYTES - self._size

    def _disk_free(self) -> int:
        found = os.statvfs(self._folder)
        return found.f_bavail * found.f_frsize

    def files(self) -> int:
        """Return the bytes that the database, its log and the room for it take on the disk."""
        found = 0
        for suffix in ("", "-wal", "-shm", "-reserve"):
            with contextlib.suppress(FileNotFoundError):
                found += self._beside(suffix).stat().st_size
        return found

    def check_room(self, pages: int) -> None:
        """SpoolFull if the disk has too little room for *pages* pages: the log could not be emptied."""
        growth = pages * PAGE_BYTES - self._size
        if growth > 0 and (free := self._disk_free()) < 2 * growth:
            raise SpoolFull(
                f"spool {str(self.path)!r} cannot grow, since its disk is full ({free:,} bytes are left): "
                "nothing was added"
            )

    def take_room(self) -> None:
        """Take the room for the log, if that was not possible before. SpoolFull."""
        if not self.has_room and not self._take_room():
            raise SpoolFull(
                f"spool {str(self.path)!r} needs {LOG_BYTES:,} bytes for its log, and its disk is full: "
                "nothing was added"
            )

    def make_way(self) -> None:
        """Within a transaction that removed something: let the file end earlier if the disk has no room for more."""
        growth = self._growth()
        if growth > 0 and self._disk_free() < 2 * growth:
            self._vacuum(growth // PAGE_BYTES + 1)

    def make_room(self) -> None:
        """Within a transaction that added something: let the file end earlier if it must. SpoolFull if it cannot."""
        self.make_way()
        self.check_room(self.pages())

    def shrink(self) -> bool:
        """Give a piece of what is free back to the disk. Return whether there is more."""
        with self.transaction(READ):
            (free,) = self.pragma("freelist_count")
            if free <= SPARE_PAGES and self._growth() == 0:
                return False
        with self.transaction(WRITE):
            (free,) = self.pragma("freelist_count")
            self._vacuum(min(PAGES_GIVEN_BACK, free - SPARE_PAGES))
        with self.lock:
            try:
                self.db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # that cuts the file
            except ERRORS as error:
                raise self.failure(error) from None
        return bool(free - SPARE_PAGES > PAGES_GIVEN_BACK)

    def _vacuum(self, pages: int) -> None:
        """Take free pages from the end of the file: one by each statement, since Python makes one step of it."""
        for _ in range(pages):
            self.db.execute("PRAGMA incremental_vacuum(1)")

    def pragma(self, name: str) -> tuple[int]:
        """Return a number that SQLite has."""
        found: tuple[int] = self.db.execute(f"PRAGMA {name}").fetchone()
        return found

    def _take_room(self) -> bool:
        """Make the log as long as it may become, while nobody writes to it. Return whether the disk has the room."""
        if not hasattr(os, "posix_fallocate"):  # on macOS: all works, but for a disk that is full
            self.has_room = True
            return True
        with contextlib.suppress(OSError, sqlite3.Error):
            _allocate(self._beside("-wal"), LOG_BYTES, os.O_RDWR)
            self.has_room = True
        return self.has_room

    def _keep_room(self) -> None:
        """After the last process has closed the file, which removes the log, keep its room until the next one."""
        if self._beside("-wal").exists() or not hasattr(os, "posix_fallocate"):
            return
        try:
            _allocate(self._beside("-reserve"), LOG_BYTES + 16 * PAGE_BYTES, os.O_RDWR | os.O_CREAT)
        except OSError:
            self._beside("-reserve").unlink(missing_ok=True)

    # --- opening and closing ---

    def _open(self) -> None:
        self._check_owner()
        if self._beside(".salvaged").exists():  # a process ended while it put the new file in place
            self._put_in_place(self._aside())
        try:
            self._forget_unfinished()
            self._create()
            self._narrow()
            self._beside("-reserve").unlink(missing_ok=True)
        except OSError as error:
            raise SpoolDamaged(f"spool {str(self.path)!r} cannot be opened: {error.strerror}") from None
        try:
            self._connect()
        except Damaged:
            if not self._is_ours():
                raise SpoolDamaged(f"{str(self.path)!r} is no spool, or damaged all over: name another file") from None
            self._replace(None)
            self._connect()
        self._check_owner()  # of the log, too, which somebody may have put there before SQLite did
        self._take_room()

    def _create(self) -> None:
        # Never is an existing file opened here: closing it would drop the locks that SQLite has on it in this process.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def _check_owner(self) -> None:
        """SpoolDamaged if a file of the spool is a link, a pipe or such, or another user's: others may write here."""
        folder = self.path.parent.stat()
        for suffix in (*SIDES, *PASSING_SUFFIXES):
            with contextlib.suppress(FileNotFoundError):
                found = (path := self._beside(suffix)).lstat()
                if not stat.S_ISREG(found.st_mode) or is_foreign(found, folder):
                    raise SpoolDamaged(
                        f"{str(path)!r} is no plain file of this user: name a spool in a folder of your own"
                    )

    def _narrow(self) -> None:
        """Let nobody but the owner read what waits here."""
        for suffix in SIDES:
            path = self._beside(suffix)
            with contextlib.suppress(FileNotFoundError, PermissionError):
                found = os.lstat(path)
                if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077:
                    path.chmod(0o600)
                    log.warning(
                        "edge: others could open %s (mode %o): now only its owner can", path, found.st_mode & 0o777
                    )

    def _connect(self) -> None:
        try:
            self.db = sqlite3.connect(self.path, timeout=LOCK_SECONDS, isolation_level=None, check_same_thread=False)
            self.db.text_factory = lambda raw: raw.decode("utf-8", "replace")
            self._inode = self.path.stat().st_ino
            prepare(self.db, on_disk=self._on_disk)
            with self.transaction(WRITE):
                self._check_kind()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise self.failure(error) from None

    def _check_kind(self) -> None:
        (version,), (application,) = self.pragma("user_version"), self.pragma("application_id")
        where = f"spool {str(self.path)!r}"
        if version == 0 and self.db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            make_tables(self.db)
        elif version == 1 and application == 0 and is_version_one(self.db):
            bring_up_to_date(self.db)
            sign(self.db)
            log.info("edge: %s was of version 1, and is of version %d now", where, SCHEMA)
        elif (version, application) != (SCHEMA, APPLICATION):
            raise SpoolDamaged(f"{where} is of version {version}, or another program's: this shardq knows {SCHEMA}")

    def close(self) -> None:
        """Close the file. In a forked child nothing is done: SQLite's locks are the parent's."""
        if os.getpid() == self.pid:
            with self.lock, self._guard():
                self.db.close()
                self._keep_room()

    # --- what is damaged ---

    def mend(self) -> None:
        """Put what can be read of a damaged file into a new one, if no other process has, and open that."""
        with self.lock, self._guard():
            with contextlib.suppress(*ERRORS):
                self.db.execute(WRITE)  # other processes wait, and then see that the file is another one
            try:
                if self.path.stat().st_ino == self._inode:
                    self._replace(self.db)
            except FileNotFoundError:
                pass
            except SpoolFull:  # it is tried again, with a transaction of its own
                self.db.rollback()
                raise
            with contextlib.suppress(sqlite3.Error):
                self.db.close()
            self._open()

    def _replace(self, old: sqlite3.Connection | None) -> None:
        """Make a new file of what can be read, move the damaged one aside, and tell."""
        aside, fresh = self._aside(), self._beside(".salvaging")
        try:
            found = self._salvage(old, fresh)
        except (*ERRORS, OSError) as error:
            self._forget_unfinished()  # a disk that is full needs the room
            raise SpoolFull(f"spool {str(self.path)!r} is damaged, and cannot be copied yet: {error}") from None
        fresh.rename(self._beside(".salvaged"))
        self._put_in_place(aside)
        log.error("edge: spool %s was damaged: %s; the damaged file is %s", self.path, found.text(), aside)

    def _salvage(self, old: sqlite3.Connection | None, fresh: Path) -> Salvaged:
        self._forget_unfinished()
        os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as new:
            prepare(new, on_disk=True)
            new.execute("PRAGMA journal_mode = OFF")  # the file is complete or forgotten; a log would be as long as it
            with new:
                new.execute(WRITE)
                make_tables(new)
                if old is not None:
                    return salvage(old, new)
                with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as opened:
                    return salvage(opened, new)

    def _forget_unfinished(self) -> None:
        """Remove a new file that could not be completed, perhaps by a process that was killed meanwhile."""
        for suffix in ("", "-wal", "-shm"):
            self._beside(f".salvaging{suffix}").unlink(missing_ok=True)

    def _put_in_place(self, aside: Path) -> None:
        """Each step may have been done by a process that was killed then; the last one makes the new file the spool."""
        for suffix in ("-wal", "-shm", ""):
            with contextlib.suppress(FileNotFoundError):
                self._beside(suffix).rename(f"{aside}{suffix}")
        self._beside(".salvaged").rename(self.path)

    def _aside(self) -> Path:
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
        return self._beside(f".damaged-{now}")

    def _is_ours(self) -> bool:
        """Whether the file was a spool, by the number of this program in it.

        SQLite's own descriptor of it is looked for and read: to close another one would drop the locks that SQLite has
        on the file in this process.
        """
        found = self.path.stat()
        for each in Path("/dev/fd").iterdir():
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(int(each.name)), found):
                    return os.pread(int(each.name), 4, 68) == APPLICATION.to_bytes(4, "big")
        return False

    def _beside(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Let one process at a time open or replace the file: a lock on its folder, which makes no further file."""
        try:
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise SpoolDamaged(f"spool {str(self.path)!r} cannot be opened: {error.strerror}") from None
        try:
            self._lock_folder(folder)
            yield
        finally:
            os.close(folder)

    def _lock_folder(self, folder: int) -> None:
        """Wait for the lock as long as others may need it. Any user that may read a folder can hold it for ever."""
        until = _CLOCK.monotonic() + LOCK_SECONDS
        while True:
            try:
                return fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if _CLOCK.monotonic() > until:
                    raise SpoolDamaged(
                        f"spool {str(self.path)!r} cannot be opened: another process has locked its folder"
                        f" ({LOCK_SECONDS:g} s)"
                    ) from None
                time.sleep(LOOK_INTERVAL)

    def failure(self, error: sqlite3.Error | UnicodeDecodeError) -> SpoolFull | SpoolDamaged:
        """Return what an error of SQLite means for who uses the spool."""
        extended = getattr(error, "sqlite_errorcode", 0)
        code, where = extended & 0xFF, f"spool {str(self.path)!r}"
        if isinstance(error, UnicodeDecodeError):
            return Damaged(f"{where} is damaged")
        if code in _DAMAGE_CODES or extended in _CUT_OFF or str(error).startswith("no such "):
            return Damaged(f"{where} is damaged ({error})")
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            return SpoolFull(
                f"{where} cannot be written, since the disk is full or failed: nothing was added ({error})"
            )
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return SpoolFull(
                f"{where} was locked by another process for {LOCK_SECONDS:g} s: nothing was added; try again"
            )
        return SpoolDamaged(f"{where} cannot be used: {error}")


def prepare(db: sqlite3.Connection, *, on_disk: bool) -> None:
    """Set a connection up, and the file, if it is new."""
    if db.execute("PRAGMA page_count").fetchone() == (0,):
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(f"PRAGMA synchronous = {'FULL' if on_disk else 'NORMAL'}")
    db.execute("PRAGMA secure_delete = OFF")  # else the log has as many bytes as what is removed
    db.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
    db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")


def make_tables(db: sqlite3.Connection) -> None:
    """Make the tables of a new spool, within a transaction."""
    for statement in (*TABLES, *COUNTING):
        db.execute(statement)
    sign(db)


def sign(db: sqlite3.Connection) -> None:
    """Say in the file whose it is, and its version, within a transaction."""
    db.execute(f"PRAGMA user_version = {SCHEMA}")
    db.execute(f"PRAGMA application_id = {APPLICATION}")


def _allocate(path: Path, size: int, flags: int) -> None:
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(file, 0, size)
    finally:
        os.close(file)
