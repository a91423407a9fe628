"""The steps that operations yield, and the two ways in which one can fail."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from shardq.ops.state import QueueState
from shardq.ops.waiting import Waiter, Waiting
from shardq.protocol.keys import QueueKeys, RouterKeys
from shardq.protocol.scripts import Script, load

T = TypeVar("T")
Argument: TypeAlias = str | bytes | int | float


@dataclass(slots=True)
class Call:
    """Run one script. `replicas` > 0 waits after it, on the same connection, for so many to confirm.

    `until` is the local time at which the caller gives up; who yields it writes it down for each try.
    """

    script: Script
    keys: tuple[str, ...]
    args: tuple[Argument, ...] = ()
    replicas: int = 0
    until: float = field(default=math.inf, compare=False)

    @classmethod
    def on(
        cls,
        keys: QueueKeys | RouterKeys,
        script: str,
        args: tuple[Argument, ...] = (),
        *,
        rest: tuple[str, ...] = (),
        replicas: int = 0,
    ) -> Call:
        """The call of *script* with those of *keys* that its header names, and *rest* for the last, `KEYS[n..]`."""
        known = load(script)
        return cls(known, keys.of(script, known.keys) + rest, args, replicas)


@dataclass(frozen=True, slots=True)
class Batch:
    """Run several calls in one round trip to each node: a list, for each its reply or the failure it ended with.

    The caller gives up at local time `until`.
    """

    calls: tuple[Call, ...]
    until: float = math.inf


@dataclass(frozen=True, slots=True)
class Armed:
    """Wait for up to `count` notifications, and run `call` the moment that ends, after `block_ms` ms at the latest.

    The answers, of which each can be a `Refused`: the connection's number, the server's time before the wait (seconds,
    microseconds), what the wait ended with, the reply to `call`. At local time `wake_at` there is a reason to end the
    wait.
    """

    key: str
    count: int
    block_ms: int
    call: Call
    wake_at: float
    waiting: Waiting


@dataclass(frozen=True, slots=True)
class Wait:
    """Let `waiter` wait on the queue of `state`, together with others, until it is done."""

    state: QueueState
    waiter: Waiter


@dataclass(slots=True)
class Ask:
    """Run one plain command, such as INFO; its raw reply. One about a key goes to the node that owns `key`.

    `until` is as a call's.
    """

    words: tuple[Argument, ...]
    key: str | None = None
    until: float = field(default=math.inf, compare=False)


@dataclass(frozen=True, slots=True)
class Sleep:
    """Pause between two tries."""

    seconds: float


Step: TypeAlias = Call | Batch | Armed | Wait | Ask | Sleep
Op: TypeAlias = Generator[Step, Any, T]


class Refused(Exception):
    """The server answered with an error: nothing happened. `code` is its first word."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code} {text}".strip())
        self.code = code
        self.text = text


class Unanswered(Exception):
    """No answer came. `sent` says whether the server may have acted."""

    def __init__(self, text: str, *, sent: bool) -> None:
        super().__init__(text)
        self.sent = sent


class Underreplicated(Exception):
    """The call was answered with `reply`, but only `confirmed` replicas said in time that they have what it wrote.

    None of them could be asked if the server `refused` to wait. Whether the call wrote anything, the reply says.
    """

    def __init__(self, reply: Any, confirmed: int, refused: Refused | None = None) -> None:
        super().__init__(f"{confirmed} replicas confirmed")
        self.reply = reply
        self.confirmed = confirmed
        self.refused = refused

    def explain(self, wanted: int) -> str:
        """What to tell who *wanted* so many replicas to confirm."""
        if self.refused is not None:
            return (
                f"Redis refused to wait for {wanted} replicas ({self.refused}), so nobody knows whether they have it; "
                "see docs/operations.md for the ACL"
            )
        return f"{self.confirmed} of {wanted} replicas confirmed in time; a failover now could lose it"
