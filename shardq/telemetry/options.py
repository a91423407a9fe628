"""A program's wishes for spans, besides what all have."""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Literal

from shardq.arguments import flag, one_of, shown
from shardq.errors import ConfigError

TENANTS: Final = ("plain", "hash", "off")


@dataclass(frozen=True, slots=True)
class Spans:
    """How the spans of a client look (docs/telemetry.md). ConfigError for a bad value.

    By default the span of a job is linked to the one that wrote its message, and begins a trace of its own, unless one
    is current. With *parent* it is a child of the one that wrote it, so both are in one trace.

    *tenant* is what spans tell of the shard key, which usually names a tenant: "plain", "hash" (8 letters that are the
    same for the same key) or "off".

    >>> from shardq import Client
    >>> client = Client.from_url("redis://localhost", spans=Spans(parent=True, tenant="hash"))
    """

    parent: bool = False
    tenant: Literal["plain", "hash", "off"] = "plain"

    def __post_init__(self) -> None:
        """Check the values."""
        flag("parent", self.parent)
        one_of("tenant", self.tenant, TENANTS)


def of_environment() -> Spans:
    """Return what SHARDQ_SPANS says, such as `parent,tenant=hash`: the default of clients that are given none."""
    found: dict[str, Any] = {}
    for word in filter(None, map(str.strip, os.environ.get("SHARDQ_SPANS", "").split(","))):
        name, _, value = word.partition("=")
        if word == "parent":
            found["parent"] = True
        elif name == "tenant" and value in TENANTS:
            found["tenant"] = value
        else:
            raise ConfigError(f"SHARDQ_SPANS may have parent and tenant={'|'.join(TENANTS)}, not {shown(word)}")
    return Spans(**found)


def shown_tenant(options: Spans, key: str | bytes) -> str | None:
    """Return what spans tell of a shard key; None for nothing."""
    if options.tenant == "off":
        return None
    if options.tenant == "hash":
        return hashed(key)
    return key if isinstance(key, str) else key.hex()


def hashed(key: str | bytes) -> str:
    """Return 8 letters that stand for a shard key: the same everywhere. A guess of a key can be checked by them.

    >>> hashed("acme")
    'zm6wmfn4'
    """
    raw = key.encode(errors="surrogatepass") if isinstance(key, str) else key
    number = int.from_bytes(blake2b(raw, digest_size=5).digest())
    return "".join(_LETTERS[number >> shift & 31] for shift in range(35, -5, -5))


_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
