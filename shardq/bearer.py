"""Bearer tokens: random texts that say who somebody is. Files have their hashes, never the tokens."""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypeVar

from shardq.errors import ConfigError

T = TypeVar("T")
PREFIX = "shardq_"
"""How each fresh token begins. By that people and scanners recognize a token that leaked."""
MAX_TOKEN = 512
"""Letters of a token."""
NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
"""The form of a token's name."""
DIGEST = re.compile(r"[0-9a-fA-F]{64}")


def fresh_token() -> tuple[str, str]:
    """Return a new random token of 256 bits, and the hex of its SHA-256."""
    secret = PREFIX + secrets.token_urlsafe(32)
    return secret, hashlib.sha256(secret.encode()).hexdigest()


def digest_of(secret: str) -> bytes:
    """Return the SHA-256 of a token."""
    return hashlib.sha256(secret[: MAX_TOKEN + 1].encode(errors="replace")).digest()


def holder(secret: str, known: Iterable[tuple[bytes, T]]) -> T | None:
    """Return what belongs to the digest of *secret*. The time does not show which one is nearly right."""
    digest, found = digest_of(secret), None
    for each, value in known:  # all of them, always
        if hmac.compare_digest(each, digest):
            found = value
    return found if len(secret) <= MAX_TOKEN else None


def expiry(where: str, value: Any) -> float:
    """Return when a token ends, in seconds since the epoch: infinite if it says nothing. ConfigError."""
    if value is None:
        return math.inf
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ConfigError(
            f"{where}: expires must be a time with its zone, such as 2027-01-31T00:00:00Z, without quotes"
        )
    return value.timestamp()


def digests(what: str, value: Any) -> tuple[bytes, ...]:
    """Return the bytes of one hex digest, or of a list of such. ConfigError, which begins with *what*."""
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not listed or not all(_is_digest(each) for each in listed):
        raise ConfigError(f"{what}: 64 hex digits, or a list of such; see shardq serve token")
    return tuple(map(bytes.fromhex, listed))


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and DIGEST.fullmatch(value) is not None
