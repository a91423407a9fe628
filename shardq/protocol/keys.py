"""The Redis keys of queues and routers. No other module builds a key.

All keys of one queue share the hash tag `{name}`, so they are in one cluster slot and one script may use them all. A
name contains no braces, so two queues never share a key. It contains no glob characters, so a key is never a pattern.

>>> keys = QueueKeys("orders/eu")
>>> keys.meta, keys.stream(3)
('shardq:{orders/eu}:meta', 'shardq:{orders/eu}:s3')
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Final

from shardq.arguments import check_name, shown
from shardq.errors import ConfigError
from shardq.sharding import MAX_STREAMS

SLOTS: Final = 16384
"""How many slots a Redis Cluster has."""

_NAMES: Final = (
    "meta", "bodies", "turns", "notifications", "leases", "due", "journal", "delayed", "errors", "cancelled", "dedup",
    "dedup_index", "producers", "bulk_offsets", "returned", "dead", "moved", "finished", "failures", "assigned",
    "limits", "results", "result_ends", "schedules", "schedule_due", "workers", "minutes", "actions",
)  # fmt: skip
"""The first ones in the order of lua/base.lua."""

MAX_PLAIN_KEYS: Final = 5
"""Keys that a plain call declares."""


def _check(script: str, names: tuple[str, ...], suffixes: Mapping[str, str], kind: str) -> None:
    for name in names:
        if name not in suffixes:
            raise LookupError(f"the header of the verb {script} names the key {name!r}, which a {kind} lacks")


_PART: Final = re.compile(r"#[1-9]\d?\.[0-9a-z]{1,4}")
"""The end of a partition's name, behind that of its queue. No user can name a queue so."""


def check_part(name: str) -> str:
    """Return the name of a queue or of a partition; else ConfigError."""
    queue, mark, _ = name.partition("#") if isinstance(name, str) else (name, "", "")
    if not mark or not _PART.fullmatch(name, len(queue)):
        return check_name(name)
    check_name(queue)
    return name


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keys of the queue or router `name`. Each attribute is one key. ConfigError for a bad name.

    A key is `shardq:{name}:`, then `beginning`, then the suffix that `suffixes` has for its attribute. Safe across
    threads, because only caches change, and their entries never do.
    """

    kind: ClassVar[str]
    beginning: ClassVar[str]
    suffixes: ClassVar[Mapping[str, str]]

    name: str = field(compare=False)
    prefix: str = field(init=False, repr=False)
    declared: dict[str, tuple[str, ...]] = field(init=False, compare=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        prefix = f"shardq:{{{self.check(self.name)}}}:{self.beginning}"
        put = object.__setattr__  # the dataclass is frozen
        put(self, "prefix", prefix)
        put(self, "name", self.name.partition("#")[0])
        for attribute, suffix in self.suffixes.items():
            put(self, attribute, prefix + suffix)

    @property
    def tag(self) -> str:
        """The hash tag of the keys: a partition's is not its queue's name."""
        return self.prefix[self.prefix.index("{") + 1 : self.prefix.rindex("}")]

    @staticmethod
    def check(name: str) -> str:
        """Return the name if it is a good one; else ConfigError."""
        return check_name(name)

    def of(self, script: str, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the keys that script *script* declares, in the order of the *names* that its header gives them.

        They are in `declared` from then on. LookupError for a name that is not one of these keys.
        """
        _check(script, names, self.suffixes, self.kind)
        return self.declared.setdefault(script, tuple([getattr(self, name) for name in names]))


@dataclass(frozen=True, slots=True)
class QueueKeys(_Keys):
    """The keys of the queue `name`, or of a partition of it. Each attribute is one key. ConfigError for a bad name.

    Reports about a partition name the queue, which is all that users know of.

    >>> keys = QueueKeys("jobs#2.a")
    >>> keys.name, keys.meta
    ('jobs', 'shardq:{jobs#2.a}:meta')
    """

    kind = "queue"
    beginning = ""
    suffixes = MappingProxyType({name: name.replace("_", "-") for name in _NAMES})

    meta: str = field(init=False, compare=False, repr=False)
    notifications: str = field(init=False, compare=False, repr=False)
    leases: str = field(init=False, compare=False, repr=False)
    delayed: str = field(init=False, compare=False, repr=False)
    bodies: str = field(init=False, compare=False, repr=False)
    cancelled: str = field(init=False, compare=False, repr=False)
    dedup: str = field(init=False, compare=False, repr=False)
    dedup_index: str = field(init=False, compare=False, repr=False)
    dead: str = field(init=False, compare=False, repr=False)
    moved: str = field(init=False, compare=False, repr=False)
    assigned: str = field(init=False, compare=False, repr=False)
    journal: str = field(init=False, compare=False, repr=False)
    producers: str = field(init=False, compare=False, repr=False)
    bulk_offsets: str = field(init=False, compare=False, repr=False)
    due: str = field(init=False, compare=False, repr=False)
    limits: str = field(init=False, compare=False, repr=False)
    results: str = field(init=False, compare=False, repr=False)
    result_ends: str = field(init=False, compare=False, repr=False)
    turns: str = field(init=False, compare=False, repr=False)
    returned: str = field(init=False, compare=False, repr=False)
    errors: str = field(init=False, compare=False, repr=False)
    finished: str = field(init=False, compare=False, repr=False)
    schedules: str = field(init=False, compare=False, repr=False)
    schedule_due: str = field(init=False, compare=False, repr=False)
    workers: str = field(init=False, compare=False, repr=False)
    minutes: str = field(init=False, compare=False, repr=False)
    failures: str = field(init=False, compare=False, repr=False)
    actions: str = field(init=False, compare=False, repr=False)
    _streams: dict[int, str] = field(init=False, compare=False, repr=False, default_factory=dict)

    @staticmethod
    def check(name: str) -> str:
        """Return the name if it is that of a queue or of a partition; else ConfigError."""
        return check_part(name)

    @property
    def fixed(self) -> tuple[str, ...]:
        """Every key that is not a numbered stream, in a fixed order."""
        return tuple(getattr(self, attribute) for attribute in _NAMES)

    def stream(self, number: int) -> str:
        """Return the key of stream `number`. ConfigError unless that is 0 to 4,095."""
        key = self._streams.get(number)
        return self._spell_stream(number) if key is None else key

    def hold(self, name: str) -> str:
        """Return the key of what a streaming query of Spark holds of this queue. It expires by itself."""
        return f"{self.prefix}hold-{name}"

    @property
    def everything(self) -> tuple[str, ...]:
        """Every key but `meta`, `dead` and the numbered streams."""
        return tuple(key for key in self.fixed if key not in (self.meta, self.dead))

    def _spell_stream(self, number: int) -> str:
        if type(number) is not int or not 0 <= number < MAX_STREAMS:
            raise ConfigError(f"a stream number must be an int from 0 to {MAX_STREAMS - 1}, not {shown(number)}")
        return self._streams.setdefault(number, f"{self.prefix}s{number}")


@dataclass(frozen=True, slots=True)
class RouterKeys(_Keys):
    """The keys of the router `name`, in the slot of the queue of that name. ConfigError for a bad name."""

    kind = "router"
    beginning = "router-"
    suffixes = MappingProxyType({"bindings": "bindings", "changes": "changes"})

    bindings: str = field(init=False, compare=False, repr=False)
    changes: str = field(init=False, compare=False, repr=False)


def slot(key: str | bytes) -> int:
    """Return the cluster slot, 0 to 16,383, for a Redis key; a str counts as its UTF-8.

    Redis hashes the part between the first ``{`` and the next ``}``, or the whole key if there is no such part or it is
    empty, with CRC16/XMODEM (source: Redis cluster specification, "Hash tags"). `binascii.crc_hqx` is that CRC.
    """
    raw = key.encode() if isinstance(key, str) else key
    _, opening, rest = raw.partition(b"{")
    tag, closing, _ = rest.partition(b"}")
    return binascii.crc_hqx(tag if opening and closing and tag else raw, 0) % SLOTS


class SharedKeys:
    """The keys that all queues share. They have no braces, so none is a queue's."""

    suffixes: ClassVar[Mapping[str, str]] = MappingProxyType({"queues": "queues"})
    declared: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})

    def of(self, script: str, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the keys that script *script* declares. LookupError for a name that is not one of these keys."""
        _check(script, names, self.suffixes, "list of queues")
        return tuple([f"shardq:{self.suffixes[name]}" for name in names])


SHARED_KEYS: Final = SharedKeys()
