"""Parse the URL that says where Redis is."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from ipaddress import IPv6Address
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import SplitResult, parse_qs, parse_qsl, unquote, urlsplit

from redis.connection import Connection, parse_url

from shardq.errors import ConfigError

try:
    from redis import DriverInfo
except ImportError:  # redis-py before 7.2 has none, and needs none
    DRIVER_INFO: dict[str, Any] = {}
else:
    DRIVER_INFO = {"driver_info": DriverInfo()}
    """For all connections. redis-py would make one for each, and read its own version from disk every time (1.6 ms)."""

Address: TypeAlias = tuple[str, int]
Kind: TypeAlias = Literal["single", "cluster", "sentinel", "embedded"]
SCHEMES = "redis://, rediss://, unix://, redis+cluster://, redis+sentinel:// or shardq://embedded"
MAX_CONNECTIONS: Final = 32
"""Connections of a client to each server, if neither its URL nor its settings say how many."""

_BASES = {"valkey": "redis", "valkeys": "rediss"}
"""Valkey's schemes, and those that mean the same."""

_NETLOC = re.compile(r"([^/?#]*)(.*)", re.DOTALL)
_HOST = re.compile(r"(?:\[(?P<v6>[^\[\]]*)\]|(?P<name>[^\[\]:]+))(?::(?P<port>[0-9]{1,5})?)?")
_ESCAPES = "in a user or password write / as %2F, : as %3A, @ as %40, # as %23, ? as %3F"


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL. `addresses` are nodes of a cluster, or sentinels. `settings` go to redis-py's connections.

    `max_connections` are those of a client to each server.
    """

    kind: Kind
    settings: dict[str, Any] = field(repr=False)
    addresses: tuple[Address, ...] = ()
    service: str = ""
    tls: bool = False
    max_connections: int = MAX_CONNECTIONS

    @classmethod
    def parse(cls, url: str) -> Target:
        """Parse *url*. ConfigError if it has none of the known forms; its text never shows a password."""
        if not isinstance(url, str) or "://" not in url:
            raise ConfigError(f"the URL must start with {SCHEMES}")
        try:
            scheme, _, rest = url.partition("://")
            base, plus, kind = scheme.partition("+")
            scheme = f"{_BASES.get(base, base)}{plus}{kind}"
            found = cls._parsed(f"{scheme}://{rest}", scheme)
        except ConfigError:
            raise
        except ValueError:  # urllib raises it for unbalanced brackets
            raise ConfigError(f"the URL is wrong: write an IPv6 address as [::1]; {_ESCAPES}") from None
        # redis-py takes it for a setting of its pools. Callers wait for a connection, which its pools do not let them.
        return replace(found, max_connections=found.settings.pop("max_connections", MAX_CONNECTIONS))

    @classmethod
    def _parsed(cls, url: str, scheme: str) -> Target:
        if scheme in ("redis", "rediss", "unix"):
            return cls("single", _settings(url), tls=scheme == "rediss")
        base, _, kind = scheme.partition("+")
        if base in ("redis", "rediss") and kind == "cluster":
            return _cluster(base, url)
        if base in ("redis", "rediss") and kind == "sentinel":
            return _sentinel(base, url)
        if scheme == "shardq" and urlsplit(url).netloc == "embedded":
            return _embedded(url)
        raise ConfigError(f"the URL has an unknown scheme: use {SCHEMES}")  # not which: it may be a part of a password

    def __str__(self) -> str:
        """Show hosts, ports and service, without user, password and options."""
        if self.kind == "embedded":
            return "embedded"
        one = (self.settings.get("host", "localhost"), self.settings.get("port", 6379))
        hosts = ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.addresses or (one,)
        )
        return str(self.settings.get("path", f"{hosts}/{self.service}" if self.service else hosts))


def _embedded(url: str) -> Target:
    parts = urlsplit(url)
    options = parse_qs(parts.query, keep_blank_values=True)
    if parts.path.strip("/") or set(options) - {"directory"} or "" in options.get("directory", ()):
        raise ConfigError("an embedded server takes a directory or nothing: shardq://embedded?directory=PATH")
    return Target("embedded", {name: values[0] for name, values in options.items()})


def _settings(url: str) -> dict[str, Any]:
    """Return the settings for redis-py. They are checked with a connection object, which never connects."""
    parts = urlsplit(url)
    if parts.scheme != "unix":
        _check_database(parts.path.strip("/"))
    try:
        settings: dict[str, Any] = dict(parse_url(url))
    except ValueError as error:  # its text may show part of a password, unless it names an option
        about = str(error) if "in connection URL" in str(error) else "the port must be a number up to 65535"
        raise ConfigError(f"the Redis URL is wrong: {about}; {_ESCAPES}") from None
    kind = settings.pop("connection_class", Connection)
    try:
        kind(**DRIVER_INFO | {name: value for name, value in settings.items() if name != "max_connections"})
    except Exception as error:
        names = ", ".join(sorted({name for name, _ in parse_qsl(parts.query)}))
        raise ConfigError(f"redis-py's {kind.__name__} does not take one of these options: {names}") from error
    return settings


def _check_database(text: str) -> None:
    if text and not (text.isascii() and text.isdigit()):
        raise ConfigError(f"the path of a Redis URL is the number of the database, such as /0; {_ESCAPES}")


def _with_hosts(base: str, url: str, default_port: int) -> tuple[tuple[Address, ...], SplitResult]:
    """Return the hosts of *url*, and the URL with a single plain host: urllib refuses several in brackets."""
    netloc, rest = _NETLOC.fullmatch(url.partition("://")[2]).groups()  # type: ignore[union-attr] # matches any text
    credentials, at, hosts = netloc.rpartition("@")
    return _hosts(hosts, default_port), urlsplit(f"{base}://{credentials}{at}host{rest}")


def _hosts(text: str, default_port: int) -> tuple[Address, ...]:
    addresses = []
    for each in text.split(","):
        found = _HOST.fullmatch(each)
        port = int(found["port"] or default_port) if found else 0
        if not found or not 0 < port < 65536:
            raise ConfigError("the URL must name hosts as host:port, several separated by commas, IPv6 as [::1]:port")
        if found["v6"]:
            IPv6Address(found["v6"])
        addresses.append((found["v6"] or found["name"], port))
    return tuple(addresses)


def _cluster(base: str, url: str) -> Target:
    addresses, parts = _with_hosts(base, url, 6379)
    settings = _settings(parts._replace(path="").geturl())
    for name in ("host", "port", "db"):
        settings.pop(name, None)
    return Target("cluster", settings, addresses, tls=base == "rediss")


def _sentinel(base: str, url: str) -> Target:
    addresses, parts = _with_hosts(base, url, 26379)
    service, _, db = parts.path.strip("/").partition("/")
    if not service:
        raise ConfigError("a sentinel URL ends with the service's name: redis+sentinel://host1,host2/mymaster/0")
    _check_database(db)
    settings = _settings(parts._replace(path=f"/{db}").geturl())
    del settings["host"]
    return Target("sentinel", settings, addresses, service=unquote(service), tls=base == "rediss")
