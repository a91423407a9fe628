"""The tables of a spool, and how each row says whether it is as it was written."""

from __future__ import annotations

import sqlite3
from typing import Final
from zlib import crc32

SCHEMA: Final = 2
APPLICATION: Final = int.from_bytes(b"sqed", "big")
"""The number by which SQLite's files say whose they are."""
PAGE_BYTES: Final = 4096
ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)
"""The errors of SQLite: the second one if it quotes a damaged file, and that is no text."""

MESSAGES: Final = """CREATE TABLE messages (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB NOT NULL, request BLOB NOT NULL, at REAL, sum INTEGER NOT NULL
)"""
TABLES: Final = (
    MESSAGES,
    "CREATE TABLE held (seq INTEGER PRIMARY KEY, place TEXT, size INTEGER, reason TEXT, text TEXT, since REAL)",
    "CREATE INDEX held_by_place ON held (place, size, seq)",
    "CREATE INDEX held_by_since ON held (since)",
    "CREATE TABLE places (name TEXT PRIMARY KEY, reason TEXT, text TEXT, messages INTEGER, since REAL)",
    """CREATE TABLE refused (
        number INTEGER PRIMARY KEY AUTOINCREMENT, seq INTEGER, id BLOB, request BLOB, reason TEXT, text TEXT, at REAL,
        sum INTEGER
    )""",
    "CREATE INDEX refused_by_seq ON refused (seq)",
    "CREATE TABLE kept (name TEXT PRIMARY KEY, value BLOB NOT NULL, sum INTEGER NOT NULL)",
    """CREATE TABLE counts (
        row INTEGER PRIMARY KEY, waiting INTEGER, bytes INTEGER, held INTEGER, accepted INTEGER, acked INTEGER,
        refused INTEGER, dropped INTEGER, refused_bytes INTEGER, forgotten INTEGER, forgotten_seq INTEGER,
        resent INTEGER
    )""",
    "INSERT INTO counts VALUES (1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)",
)
COUNTING: Final = (
    """CREATE TRIGGER is_held AFTER INSERT ON held BEGIN
        UPDATE counts SET held = held + 1;
        INSERT INTO places VALUES (new.place, new.reason, new.text, 1, new.since)
            ON CONFLICT (name) DO UPDATE SET messages = messages + 1;
    END""",
    """CREATE TRIGGER is_held_no_more AFTER DELETE ON held BEGIN
        UPDATE counts SET held = held - 1;
        UPDATE places SET messages = messages - 1 WHERE name = old.place;
        DELETE FROM places WHERE name = old.place AND messages <= 0;
    END""",
)
"""Triggers keep counts of held messages, in total and per place, because COUNT(*) is too slow."""
OVERHEAD: Final = 64
"""Bytes that a message takes in the file besides its request, about."""


def checksum(name: bytes, content: bytes) -> int:
    """Return a sum of a row's name and content, by which flipped bits are noticed."""
    return crc32(content, crc32(name))
