"""People who look at the page, and what each may do."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, TypeAlias

from starlette.requests import Request

from shardq.arguments import shown
from shardq.bearer import NAME, digests, expiry, holder
from shardq.errors import ConfigError
from shardq.files import read_file, shortened, toml

MAX_FILE: Final = 1024 * 1024
"""Bytes of a file of people."""
_FIELDS: Final = {"name", "role", "sha256", "expires"}


log = logging.getLogger("shardq.dashboard")


class Role(IntEnum):
    """A person's rights: each role may do all that those before it may.

    >>> Role.VIEW < Role.ACT < Role.ADMIN
    True
    """

    VIEW = 1
    """Look."""
    ACT = 2
    """Do what can be undone, or concerns a few messages."""
    ADMIN = 3
    """Do all that the page offers."""


ROLES: Final = tuple(each.name.lower() for each in Role)
"""The names of the roles, as files and the page spell them."""


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who looks at the page. The `name` stands in the journal, and the `role` says what they may do.

    >>> Person("ada", Role.ACT).role < Role.ADMIN
    True
    """

    name: str
    role: Role


ANYBODY: Final = Person("anybody", Role.VIEW)
"""All who look at a page that asks nobody who they are."""

Auth: TypeAlias = Callable[[Request], Person | Awaitable[Person | None] | None]
"""The team's own answer to who asks; None: nobody who may look."""


@dataclass(frozen=True, slots=True)
class PersonEntry:
    """A person of a file, with the digests of their tokens, which hold until they expire (seconds of the epoch)."""

    person: Person
    digests: tuple[bytes, ...]
    expires: float


class People:
    """The people of one file."""

    def __init__(self, entries: Sequence[PersonEntry]) -> None:
        self.entries = {each.person.name: each for each in entries}
        self._digests = [(digest, each) for each in entries for digest in each.digests]

    def find(self, secret: str) -> PersonEntry | None:
        """Return whose token *secret* is. The time does not show which one is nearly right."""
        return holder(secret, self._digests)

    @classmethod
    def read(cls, path: Path) -> People:
        """Read a file of people. ConfigError says what is wrong with it."""
        document = toml(read_file(path, MAX_FILE, "the file of people"), shortened(str(path)))
        tables = document.get("people")
        if set(document) != {"people"} or not isinstance(tables, list):
            raise ConfigError(f"{path} must have tables [[people]], and nothing else")
        entries = [_entry(f"{path}: person {number}", table) for number, table in enumerate(tables, 1)]
        hashes = [digest for each in entries for digest in each.digests]
        if len({each.person.name for each in entries}) < len(entries):
            raise ConfigError(f"{path} has two people of one name; a person may have several sha256")
        if len(set(hashes)) < len(hashes):
            raise ConfigError(f"{path} has one sha256 twice")
        return cls(entries)


def _entry(where: str, table: Any) -> PersonEntry:
    if not isinstance(table, dict):
        raise ConfigError(f"{where} must be a table")
    if unknown := sorted(set(table) - _FIELDS):
        raise ConfigError(f"{where} has the unknown field {shown(unknown[0])}")
    name, role = table.get("name"), table.get("role")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigError(f"{where} needs a name of 1 to 100 letters, digits and . _ -")
    where = f"{where} ({name})"
    if role not in ROLES:
        raise ConfigError(f"{where} needs a role: {', '.join(ROLES[:-1])} or {ROLES[-1]}")
    found = digests(f"{where} needs sha256", table.get("sha256"))
    return PersonEntry(Person(name, Role[str(role).upper()]), found, expiry(where, table.get("expires")))


class PeopleFile:
    """A file of people, which is read again when it has changed. While it cannot be read, nobody is added or lost."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mark = _mark(path)
        self._people = People.read(path)

    @property
    def people(self) -> People:
        """The people as the file has them now."""
        mark = _mark(self._path)
        if mark != self._mark:
            self._mark = mark
            try:
                self._people = People.read(self._path)
            except ConfigError as error:
                log.warning("people are those of before: %s", error)
        return self._people


def _mark(path: Path) -> tuple[int, ...]:
    """Return what changes with a file: its time, its size, and which file has the name."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino
