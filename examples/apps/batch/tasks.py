"""A task of many: workers collect the calls that come within half a second."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from shardq.tasks import Tasks

URL = os.environ.get("SHARDQ_URL", "redis://localhost:6379")
DATABASE = "documents.sqlite3"
TABLE = "CREATE TABLE IF NOT EXISTS documents (name TEXT PRIMARY KEY, size INTEGER, batch INTEGER)"


@contextmanager
def database() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(DATABASE, timeout=30, check_same_thread=False)) as connection:
        connection.execute(TABLE)
        yield connection


tasks: Tasks[sqlite3.Connection] = Tasks("documents", lifespan=database)


@tasks.batch(size=100, wait=0.5)
async def store(documents: list[tuple[str, str]]) -> None:
    """Store them in one transaction. Done twice it is the same, as it may be after a crash."""
    rows = [(name, len(text), len(documents)) for name, text in documents]
    with tasks.resources as connection:
        connection.executemany("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", rows)
