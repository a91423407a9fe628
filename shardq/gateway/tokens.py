"""Bearer tokens: their rights to write, and their rates. A TOML file has their hashes, never the tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from shardq.arguments import shown, whole
from shardq.bearer import NAME, digests, expiry, holder
from shardq.errors import ConfigError
from shardq.files import read_file, shortened, toml

MAX_FILE = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Patterns:
    """Names that are allowed: exact ones, and those that begin with one of `prefixes`."""

    exact: frozenset[bytes]
    prefixes: tuple[bytes, ...]

    @classmethod
    def of(cls, patterns: Iterable[str]) -> Patterns:
        """Return the names that *patterns* allow; one that ends with `*` allows all that begin so. ConfigError."""
        try:
            texts = [pattern.encode() for pattern in patterns]
        except UnicodeEncodeError:
            raise ConfigError("a pattern of a token must be valid Unicode: one holds a lone surrogate") from None
        return cls(
            frozenset(text for text in texts if not text.endswith(b"*")),
            tuple(text[:-1] for text in texts if text.endswith(b"*")),
        )

    def allow(self, name: bytes) -> bool:
        """Return whether *name* is allowed."""
        return name in self.exact or name.startswith(self.prefixes)


def has_parents(prefixes: Iterable[bytes]) -> bool:
    """Return whether all shard keys that begin with one of *prefixes* have a parent that is named there."""
    return all(prefix.find(b"/") > 0 for prefix in prefixes)


@dataclass(frozen=True, slots=True)
class Token:
    """The rights of the bearer of one token. If a number is None, the gateway's own bound holds; a rate of 0 is none.

    With `one_tenant`, all that it sends has its name as shard key. None means that it does not say whether it may be
    many tenants, so its patterns of shard keys need queues that count by parents. If it `continues_traces`, its trace
    context is that of its messages, and else only a link. It holds until it `expires`, in seconds since the epoch, and
    only with a client's certificate whose SHA-256 is one of `certificates`, if there are any.
    """

    name: str
    digests: tuple[bytes, ...]
    queues: Patterns
    topics: Patterns
    shard_keys: Patterns
    messages_per_second: int | None = None
    bytes_per_second: int | None = None
    max_message: int | None = None
    capacity: int | None = None
    max_ids: int | None = None
    one_tenant: bool | None = None
    continues_traces: bool = False
    expires: float = math.inf
    certificates: frozenset[bytes] = frozenset()

    @property
    def needs_parents(self) -> bool:
        """Whether it may make up shard keys, and is to be one tenant for each parent that it names."""
        return self.one_tenant is None and bool(self.shard_keys.prefixes)

    @property
    def is_bounded(self) -> bool:
        """Whether it says how many tenants it may be, if it may make up shard keys."""
        return not self.needs_parents or has_parents(self.shard_keys.prefixes)

    def goes_on_as(self, later: Token) -> bool:
        """Return whether who is connected with this may stay when the file says *later* of its name."""
        return not set(self.digests).isdisjoint(later.digests) and self.certificates == later.certificates


ALL_PATTERNS = Patterns.of(["*"])
UNCHECKED = Token(
    "insecure",
    (),
    ALL_PATTERNS,
    ALL_PATTERNS,
    ALL_PATTERNS,
    messages_per_second=0,
    bytes_per_second=0,
    one_tenant=False,
)
"""The rights of every client of a gateway without a token file. They share one identity, so rates cannot protect one
from another.
"""


class Tokens:
    """The tokens of one file."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.by_name = {token.name: token for token in tokens}
        self._digests = [(digest, token) for token in tokens for digest in token.digests]

    def find(self, secret: str) -> Token | None:
        """Return the token whose text is *secret*. The time does not show which one is nearly right."""
        return holder(secret, self._digests)

    @classmethod
    def read(cls, path: Path) -> Tokens:
        """Read a file of tokens. ConfigError says what is wrong with it."""
        document = toml(read_file(path, MAX_FILE, "the file of tokens"), shortened(str(path)))
        tables = document.get("tokens")
        if set(document) != {"tokens"} or not isinstance(tables, list):
            raise ConfigError(f"{path} must have tables [[tokens]], and nothing else")
        tokens = [_token(f"{path}: token {number}", table) for number, table in enumerate(tables, 1)]
        _check_unique(path, tokens)
        return cls(tokens)


_NUMBERS = {"messages_per_second": 0, "bytes_per_second": 0, "max_message": 1, "capacity": 1, "max_ids": 1}
"""The least that each may be."""
_LISTS = ("queues", "topics", "shard_keys")
_KNOWN = ({each.name for each in fields(Token)} - {"digests", "certificates"}) | {"sha256", "certificate_sha256"}


def _token(where: str, table: Any) -> Token:
    if not isinstance(table, dict):
        raise ConfigError(f"{where} must be a table")
    if unknown := sorted(set(table) - _KNOWN):
        raise ConfigError(f"{where} has the unknown field {shown(unknown[0])}")
    name = table.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigError(f"{where} needs a name of 1 to 100 letters, digits and . _ -")
    where = f"{where} ({name})"
    found = digests(f"{where} needs sha256", table.get("sha256"))
    numbers: dict[str, Any] = {
        each: whole(f"{where}: {each}", table[each], least, 2**40) for each, least in _NUMBERS.items() if each in table
    }
    queues, topics, shard_keys = (Patterns.of(_patterns(f"{where}: {each}", table.get(each, []))) for each in _LISTS)
    token = Token(
        name, found, queues, topics, shard_keys,
        expires=expiry(where, table.get("expires")), certificates=_certificates(where, table),
        **numbers, **_flags(where, table),
    )  # fmt: skip
    if not token.is_bounded:
        raise ConfigError(
            f"{where} may make up shard keys, and with each a tenant: let shard_keys name parents, like "
            f'"site-7/*", or say one_tenant = true (it counts as one), or = false (it may be as many as it likes)'
        )
    return token


def _flags(where: str, table: dict[str, Any]) -> dict[str, bool]:
    found: dict[str, bool] = {each: table[each] for each in ("one_tenant", "continues_traces") if each in table}
    for each, value in found.items():
        if not isinstance(value, bool):
            raise ConfigError(f"{where}: {each} must be true or false")
    return found


def _certificates(where: str, table: dict[str, Any]) -> frozenset[bytes]:
    if "certificate_sha256" not in table:
        return frozenset()
    value = table["certificate_sha256"]
    listed = [value] if isinstance(value, str) else value
    if isinstance(listed, list):  # openssl prints the bytes with colons between them
        value = [each.replace(":", "") if isinstance(each, str) else each for each in listed]
    return frozenset(digests(f"{where}: certificate_sha256 must be the fingerprint of a certificate", value))


def _patterns(where: str, value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) and each for each in value):
        raise ConfigError(f"{where} must be a list of texts")
    if bad := [each for each in value if "*" in each[:-1]]:
        raise ConfigError(f"{where}: a * may only be the last character, unlike in {shown(bad[0])}")
    return value


def _check_unique(path: Path, tokens: Sequence[Token]) -> None:
    names = [token.name for token in tokens]
    hashes = [digest for token in tokens for digest in token.digests]
    if len(set(names)) < len(names):
        raise ConfigError(f"{path} has two tokens of one name; a token may have several sha256")
    if len(set(hashes)) < len(hashes):
        raise ConfigError(f"{path} has one sha256 twice")
