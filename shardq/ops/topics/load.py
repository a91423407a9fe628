"""Load all bindings of a router from Redis while other clients change them.

A load scans the hash of bindings page by page. It reads the version first, and after each page it reads the changes
since then from the stream of changes. A change says whether its binding exists after it, so the last change of each
binding is enough, and the result is correct whatever was changed during the scan.

Noting a change is many times quicker than applying it to the router. So a load notes the last change of each binding
while it scans, and applies them at the end. This takes no longer than the scan, however many changes there were. And
because the load reads the changes after each page, the stream needs to keep only those that are made during one page.
If Redis has trimmed even these, the load must start again.

At the end the load compares the number of bindings with that in Redis, because a scan that continues after a restart or
a failover may miss some.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any, Final

import msgspec

from shardq.clock import Clock
from shardq.errors import BackendError, ConfigError
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.steps import Call, Op, forget_keys
from shardq.protocol.keys import RouterKeys
from shardq.routing import Router

log = logging.getLogger("shardq")
CACHED_TOPICS: Final = 8192
"""Lookups whose results are kept: 2 MB, also if each topic is another one."""
MAX_NOTED = 100_000
"""Changes that a load notes at most, about, before it applies them. This bounds its memory."""


def empty_router() -> Router:
    """Return a router without bindings, as a client has it at first."""
    return Router(cache=CACHED_TOPICS)


class Copy(msgspec.Struct):
    """A router that is being loaded. `version` and `stamp` are those of the last change that was noted.

    `bound` counts its bindings. `foreign` are fields of the hash that are not valid bindings. `noted` are changes that
    have not been applied to `router` yet.
    """

    stamp: bytes
    version: int
    router: Router = msgspec.field(default_factory=empty_router)
    foreign: set[bytes] = msgspec.field(default_factory=set)
    bound: int = 0
    noted: dict[bytes, bytes] = msgspec.field(default_factory=dict)

    def take(self, verb: bytes, member: bytes) -> None:
        """Apply that a binding exists ("+") or does not exist ("-")."""
        change = apply_change(self.router, verb, member)
        self.bound += change or 0
        if verb == b"-":
            self.foreign.discard(member)
        elif change is None:
            self.foreign.add(member)

    def note(self, reply: list[Any]) -> bool:
        """Note the changes in a reply of `follow`. Return whether there are no more."""
        changes = reply[3]
        self.noted.update(zip(changes[1::2], changes[::2], strict=True))
        self.stamp, self.version = reply[1], self.version + len(changes) // 2
        return self.version >= int(reply[2])


def load_bindings(keys: RouterKeys, part: int, until: float, clock: Clock) -> Op[Copy | None]:
    """Load all bindings, *part* at a time. Return None if there are none, or if the load must start again."""
    reply = yield from follow(keys, b"", 0, 1, until, clock)
    if reply[0] == b"NONE":
        return None
    copy, cursor = Copy(reply[1], int(reply[2])), b"0"
    while True:
        page = Call.on(keys, "bindings", (cursor, part))
        cursor, members = yield from retry_until(always(page), until, clock)
        for member in members:
            copy.take(b"+", member)
        # Changes are noted while pages are read, and applied after them: a page may show a binding before or after one.
        total = yield from _catch_up(copy, keys, part, until, clock)
        if total is None:
            return None
        if cursor == b"0":
            break
        if len(copy.noted) > MAX_NOTED and not (yield from _apply_noted(copy, keys, part, until, clock)):
            return None
    for member, verb in copy.noted.items():
        copy.take(verb, member)
    # The count proves the copy; where it differs, the load starts again.
    return copy if copy.bound + len(copy.foreign) == total else None


def _catch_up(copy: Copy, keys: RouterKeys, part: int, until: float, clock: Clock) -> Op[int | None]:
    """Note all changes up to the newest. Return how many bindings Redis has then; None if changes were trimmed."""
    while True:
        reply = yield from follow(keys, copy.stamp, copy.version, part, until, clock)
        if reply[0] != b"OK":
            return None
        if copy.note(reply):
            total: int = reply[4]
            return total


def _apply_noted(copy: Copy, keys: RouterKeys, part: int, until: float, clock: Clock) -> Op[bool]:
    """Apply the noted changes, and note new ones meanwhile. Return False if changes were trimmed."""
    # New changes are noted apart meanwhile, so that applying these has an end.
    noted, copy.noted = list(copy.noted.items()), {}
    for at in range(0, len(noted), part):
        for member, verb in noted[at : at + part]:
            copy.take(verb, member)
        if (yield from _catch_up(copy, keys, part, until, clock)) is None:
            return False
    return True


def follow(keys: RouterKeys, stamp: bytes, version: int, count: int, until: float, clock: Clock) -> Op[list[Any]]:
    """Return the reply of `follow`: up to *count* changes after *version*."""
    call = Call.on(keys, "follow", (stamp, version, count))
    reply: list[Any] = yield from retry_until(always(call), until, clock)
    if reply[0] == b"NONE":
        forget_keys(keys)
    check_version(keys, reply)
    return reply


def check_version(keys: RouterKeys, reply: list[Any]) -> None:
    """BackendError if a script reported that the stored version is not a number."""
    if reply[0] == b"DAMAGED":
        raise BackendError(
            f"another program wrote to the bindings of router {keys.name!r}: their version is {reply[1][:40]!r}, "
            f"not a number. Write to the field '' of the hash {keys.bindings!r} a number above that of any "
            "`router_state().version`, or delete that hash and bind again"
        )


def apply_change(router: Router, verb: bytes, member: bytes) -> int | None:
    """Apply one change. Return how many bindings it added (1, 0 or -1); None if it does not name a valid binding.

    Another program may have written such a change, or an older version of shardq, which accepted any pattern.
    """
    try:
        pattern, space, queue = member.decode().rpartition(" ")
        if not space or verb not in (b"+", b"-"):
            return None
        return int(router.bind(pattern, queue)) if verb == b"+" else -int(router.unbind(pattern, queue))
    except (ConfigError, UnicodeDecodeError):
        return None


def warn_ignored(keys: RouterKeys, members: Collection[bytes]) -> None:
    """Log that *members* are ignored because they are not valid bindings."""
    if members:
        log.warning(
            "router %r: ignoring %d invalid bindings that an older version or another program wrote, such as %r: "
            "unbind patterns with too many wildcards", keys.name, len(members), next(iter(members))[:300],
        )  # fmt: skip
