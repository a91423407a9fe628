"""Where Redis is: a URL taken apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

from redis.connection import parse_url

from shardq.errors import ConfigError

Address: TypeAlias = tuple[str, int]
Kind: TypeAlias = Literal["single", "cluster", "sentinel", "embedded"]
SCHEMES = "redis://, rediss://, unix://, redis+cluster://, redis+sentinel:// or shardq://embedded"


@dataclass(frozen=True, slots=True)
class Target:
    """`addresses` are the seeds of a cluster or the sentinels; `settings` go to redis-py's connections."""

    kind: Kind
    settings: dict[str, Any] = field(repr=False)
    addresses: tuple[Address, ...] = ()
    service: str = ""
    tls: bool = False

    @classmethod
    def parse(cls, url: str) -> Target:
        """Take *url* apart; ConfigError, which never shows a password, if it is none of the known forms."""
        if not isinstance(url, str) or "://" not in url:
            raise ConfigError(f"the URL must start with {SCHEMES}")
        scheme = url.partition("://")[0]
        if scheme in ("redis", "rediss", "unix"):
            return cls("single", _settings(url), tls=scheme == "rediss")
        base, _, kind = scheme.partition("+")
        if base in ("redis", "rediss") and kind == "cluster":
            return _cluster(base, url)
        if base in ("redis", "rediss") and kind == "sentinel":
            return _sentinel(base, url)
        if scheme == "shardq" and urlsplit(url).netloc == "embedded":
            options = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
            if unknown := set(options) - {"directory"}:
                raise ConfigError(f"shardq://embedded takes ?directory=PATH, not {min(unknown)!r}")
            return cls("embedded", dict(options))
        raise ConfigError(f"unknown scheme {scheme!r}: use {SCHEMES}")


def _settings(url: str) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = dict(parse_url(url))
    except ValueError as error:
        raise ConfigError(f"the Redis URL is wrong: {error}") from None
    settings.pop("connection_class", None)
    return settings


def _hosts(netloc: str, default_port: int) -> tuple[Address, ...]:
    addresses = []
    for host in netloc.rpartition("@")[2].split(","):
        name, _, port = host.rpartition(":") if ":" in host else (host, "", "")
        if not name or (port and not port.isdigit()):
            raise ConfigError("the URL must name hosts as host:port, several separated by commas")
        addresses.append((name.strip("[]"), int(port or default_port)))
    return tuple(addresses)


def _cluster(base: str, url: str) -> Target:
    parts = urlsplit(url)
    addresses = _hosts(parts.netloc, 6379)
    credentials = parts.netloc.rpartition("@")[0]
    at = f"{credentials}@" if credentials else ""
    query = f"?{parts.query}" if parts.query else ""
    settings = _settings(f"{base}://{at}{addresses[0][0]}:{addresses[0][1]}{query}")
    for name in ("host", "port", "db"):
        settings.pop(name, None)
    return Target("cluster", settings, addresses, tls=base == "rediss")


def _sentinel(base: str, url: str) -> Target:
    parts = urlsplit(url)
    addresses = _hosts(parts.netloc, 26379)
    service, _, db = parts.path.strip("/").partition("/")
    if not service:
        raise ConfigError("a sentinel URL ends with the service's name: redis+sentinel://host1,host2/mymaster/0")
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    settings: dict[str, Any] = {"db": int(db)} if db.isdigit() else {}
    if user:
        settings["username"] = unquote(user)
    if password:
        settings["password"] = unquote(password)
    return Target("sentinel", settings, addresses, service=unquote(service), tls=base == "rediss")
