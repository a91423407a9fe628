# ruff: noqa: S608 - the names of tables and columns are constants of this package
"""A spool of version 1, which had no checksums, and kept no places: its file becomes one of this version.

That is one transaction, so a full disk or a kill leaves the file as it was.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from shardq.edge.salvage import recount
from shardq.edge.schema import COUNTING, MESSAGES, TABLES, checksum

NAMES: Final = frozenset({"messages", "refused", "counts", "kept"})


def is_version_one(db: sqlite3.Connection) -> bool:
    """Return whether a database with its number has its tables, too: any program may write a 1 there."""
    return {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")} >= NAMES


def bring_up_to_date(db: sqlite3.Connection) -> None:
    """Within a transaction: keep the messages where they are, and move the rest into new tables."""
    db.create_function("checksum", 2, lambda name, content: checksum(_bytes(name), _bytes(content)))
    db.execute("DROP INDEX by_id")
    db.execute("ALTER TABLE messages ADD COLUMN sum INTEGER NOT NULL DEFAULT 0")
    db.execute("UPDATE messages SET sum = checksum(id, request)")
    for name in sorted(NAMES - {"messages"}):
        db.execute(f"ALTER TABLE {name} RENAME TO old_{name}")
    for statement in (*(each for each in TABLES if each != MESSAGES), *COUNTING):
        db.execute(statement)
    db.execute("INSERT INTO kept SELECT name, value, checksum(name, value) FROM old_kept")
    db.execute(
        "INSERT INTO refused (seq, id, request, reason, text, at, sum) "
        "SELECT seq, id, request, reason, text, at, checksum(id, request) FROM old_refused ORDER BY at, seq"
    )
    _count(db)
    for name in sorted(NAMES - {"messages"}):
        db.execute(f"DROP TABLE old_{name}")


def _count(db: sqlite3.Connection) -> None:
    """Take over what was counted. Nobody knows which refused and dropped messages are not kept."""
    for name in ("accepted", "acked", "refused", "dropped"):
        db.execute(f"UPDATE counts SET {name} = coalesce((SELECT value FROM old_counts WHERE name = ?), 0)", (name,))
    db.execute("UPDATE counts SET forgotten = max(0, refused + dropped - (SELECT count(*) FROM refused))")
    db.execute(
        "UPDATE counts SET forgotten_seq = coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'messages'), 0) "
        "WHERE forgotten > 0"
    )
    recount(db)


def _bytes(given: str | bytes) -> bytes:
    return given.encode() if isinstance(given, str) else given
