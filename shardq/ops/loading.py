"""All bindings of a router, taken from Redis while others change them.

A load is a scan of the hash, page by page, and after each page a look at what was changed since the last one. It begins
by noting the version, and follows the stream of changes from there, so it ends in the bindings that there are, whatever
was changed while it scanned: of each binding the last change counts, and each says what is, not what is added.

Noting a change is many times quicker than making it, so a load notes the last one of each binding while it scans, and
makes them at the end. That takes no longer than loading does, however many changes there were, and since the load looks
after each page, the stream needs to keep only what is changed while one page is taken up. When even that was trimmed
away, the load has to begin again.

At the end it counts: a scan that goes on after a restart or a failover may miss some.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from shardq.clock import Clock
from shardq.errors import BackendError, ConfigError
from shardq.ops.retry import retry_until
from shardq.ops.steps import Call, Op
from shardq.protocol.keys import RouterKeys
from shardq.routing import Router

log = logging.getLogger("shardq")
MAX_NOTED = 100_000
"""Changes that a load notes before it makes them; what bounds its memory."""


@dataclass(slots=True)
class Copy:
    """A router on its way to be what Redis holds: `version` and `stamp` say how far its changes were noted.

    `bound` are the bindings in it, `foreign` the fields of the hash that are none that may be. `noted` are changes that
    are not in it yet.
    """

    stamp: bytes
    version: int
    router: Router = field(default_factory=Router)
    foreign: set[bytes] = field(default_factory=set)
    bound: int = 0
    noted: dict[bytes, bytes] = field(default_factory=dict)

    def take(self, verb: bytes, member: bytes) -> None:
        """Take over that a binding is there ("+") or is not ("-")."""
        change = apply_change(self.router, verb, member)
        self.bound += change or 0
        if verb == b"-":
            self.foreign.discard(member)
        elif change is None:
            self.foreign.add(member)

    def note(self, reply: list[Any]) -> bool:
        """Note the changes in a reply of `follow.lua`; whether they are all that there are."""
        changes = reply[3]
        self.noted.update(zip(changes[1::2], changes[::2], strict=True))
        self.stamp, self.version = reply[1], self.version + len(changes) // 2
        return self.version >= int(reply[2])


def load_bindings(keys: RouterKeys, part: int, until: float, clock: Clock) -> Op[Copy | None]:
    """All bindings, asked for in parts; None when it has to be tried again, or there are none."""
    reply = yield from follow(keys, b"", 0, 1, until, clock)
    if reply[0] == b"NONE":
        return None
    copy, cursor = Copy(reply[1], int(reply[2])), b"0"
    while True:
        page = Call.on(keys, "bindings", (cursor, part))
        cursor, members = yield from retry_until(lambda _, page=page: page, until, clock)  # type: ignore[misc]
        for member in members:
            copy.take(b"+", member)
        total = yield from _catch_up(copy, keys, part, until, clock)
        if total is None:
            return None
        if cursor == b"0":
            break
        if len(copy.noted) > MAX_NOTED and not (yield from _apply_noted(copy, keys, part, until, clock)):
            return None
    for member, verb in copy.noted.items():
        copy.take(verb, member)
    return copy if copy.bound + len(copy.foreign) == total else None


def _catch_up(copy: Copy, keys: RouterKeys, part: int, until: float, clock: Clock) -> Op[int | None]:
    """Note the changes, to the newest; how many bindings there are then. None when some of them are gone."""
    while True:
        reply = yield from follow(keys, copy.stamp, copy.version, part, until, clock)
        if reply[0] != b"OK":
            return None
        if copy.note(reply):
            total: int = reply[4]
            return total


def _apply_noted(copy: Copy, keys: RouterKeys, part: int, until: float, clock: Clock) -> Op[bool]:
    """Make the changes that are noted now, and note new ones meanwhile; False when some of them are gone."""
    noted, copy.noted = list(copy.noted.items()), {}
    for at in range(0, len(noted), part):
        for member, verb in noted[at : at + part]:
            copy.take(verb, member)
        if (yield from _catch_up(copy, keys, part, until, clock)) is None:
            return False
    return True


def follow(keys: RouterKeys, stamp: bytes, version: int, count: int, until: float, clock: Clock) -> Op[list[Any]]:
    """What changed since a version: the reply of `follow.lua`."""
    call = Call.on(keys, "follow", (stamp, version, count))
    reply: list[Any] = yield from retry_until(lambda _: call, until, clock)
    check_version(keys, reply)
    return reply


def check_version(keys: RouterKeys, reply: list[Any]) -> None:
    """BackendError when a script found that the version is none."""
    if reply[0] == b"DAMAGED":
        raise BackendError(
            f"something else wrote to the bindings of router {keys.name!r}: their version is {reply[1][:40]!r}, "
            f"not a number. Write to the field '' of the hash {keys.bindings!r} a number above that of any "
            "`router_state().version`, or delete that hash and bind again"
        )


def apply_change(router: Router, verb: bytes, member: bytes) -> int | None:
    """How many bindings more there are then; None if this is no change of a binding that may be.

    Only others write such, and older versions, which bound any pattern.
    """
    try:
        pattern, space, queue = member.decode().rpartition(" ")
        if not space or verb not in (b"+", b"-"):
            return None
        return int(router.bind(pattern, queue)) if verb == b"+" else -int(router.unbind(pattern, queue))
    except (ConfigError, UnicodeDecodeError):
        return None


def warn_ignored(keys: RouterKeys, members: Collection[bytes]) -> None:
    """Log that these are left out."""
    if members:
        log.warning(
            "router %r: %d that an older version or something else wrote are no bindings that may be, and left out, "
            "such as %r: unbind patterns with too many wildcards", keys.name, len(members), next(iter(members))[:300],
        )  # fmt: skip
