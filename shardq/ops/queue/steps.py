"""The steps that operations yield, and the exceptions with which a step can fail."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import hiredis
import msgspec

from shardq.ops.queue.state import FewKeys, QueueState
from shardq.protocol.keys import MAX_PLAIN_KEYS, QueueKeys, RouterKeys, SharedKeys
from shardq.protocol.packing import BEGINNINGS, PACKED_KEYS, forget
from shardq.protocol.script import HASH, Form, Script
from shardq.protocol.scripts import load

T = TypeVar("T")
Argument: TypeAlias = str | bytes | int | float

MORE_KEYS: Final = "MOREKEYS"
"""The code with which the server refuses a call that declares few keys and needs more: see lua/arguments.lua."""

RESENT_ALONE: Final = frozenset({"NOSCRIPT", "MOVED", "ASK", MORE_KEYS})
"""After such a refusal, a call of a batch is sent again alone: in another form, with more keys, or to another node."""


@dataclass(slots=True)
class Call:
    """Run one script. If `replicas` > 0, then wait on the same connection until this many replicas confirm it.

    With `few` it has few of the keys that the script names; the `others` it declares when the server refuses it.
    `until` is the local time at which the caller gives up. The operation that yields the call sets it for each try.
    The driver calls `on_send` when it is connected and about to send the call. It may raise `Withdrawn`.
    """

    script: Script
    keys: tuple[str, ...]
    args: tuple[Argument, ...] = ()
    replicas: int = 0
    until: float = field(default=math.inf, compare=False)
    on_send: Callable[[], None] | None = field(default=None, compare=False, repr=False)
    few: FewKeys | None = field(default=None, compare=False, repr=False)
    others: tuple[str, ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def on(
        cls,
        keys: QueueKeys | RouterKeys | SharedKeys,
        script: str,
        args: tuple[Argument, ...] = (),
        *,
        rest: tuple[str, ...] = (),
        replicas: int = 0,
        few: FewKeys | None = None,
    ) -> Call:
        """Make the call of *script* with those of *keys* that its header names, and *rest* for its `KEYS[n..]`.

        With *few* it has the first few of them alone.
        """
        known = load(script)
        named = keys.declared.get(script) or keys.of(script, known.keys)
        if few is None:
            return cls(known, named + rest, args, replicas)
        return cls(known, named[:MAX_PLAIN_KEYS] + rest, args, replicas, few=few, others=named[MAX_PLAIN_KEYS:])

    @property
    def key(self) -> str:
        """Its first key. All of them are on the same node."""
        return self.keys[0]

    def request(self, form: Form) -> bytes:
        """Return the bytes of the command that runs it in this form: as a function, or by its script's hash."""
        return self.packed(form, self.args)

    def packed(self, form: Form, args: tuple[Argument, ...], last: bytes = b"", more: int = 0) -> bytes:
        """Return the bytes of the command with these *args*, and *more* words that come *last* and are packed already.

        The command's name, the script and the keys that it names are those of earlier calls on the queue, so they are
        packed once. The other keys are packed once each: as they differ from call to call, more would not stay in the
        processor's caches.
        """
        script, keys = self.script, self.keys
        count = len(script.keys) - len(self.others)
        known = BEGINNINGS.get((script.sha if form is HASH else script.function, keys[0] if count else "", count))
        if known is None or known.named != keys[:count]:
            known = BEGINNINGS.add(script, form, keys[:count])
        number = b"%d" % len(keys)
        # hiredis may get no int: see `pack`.
        words = hiredis.pack_command(tuple([str(word) if isinstance(word, int) else word for word in args]))  # type: ignore[arg-type, unused-ignore]
        return b"".join([
            b"*%d\r\n%b$%d\r\n%b\r\n" % (3 + len(keys) + len(args) + more, known.runs, len(number), number),
            known.keys,
            *[PACKED_KEYS[key] for key in keys[count:]],
            words[words.index(b"\n") + 1 :],
            last,
        ])  # fmt: skip

    def whole(self) -> Call:
        """Return the same call with all keys that its script names, after it was refused with `MORE_KEYS`."""
        if self.few is None:
            return self
        self.few.lack()
        return replace(
            self, keys=self.keys[:MAX_PLAIN_KEYS] + self.others + self.keys[MAX_PLAIN_KEYS:], few=None, others=()
        )

    def explain(self, refused: Refused) -> Refused:
        """Return *refused*, which this call was, with its verb, and with the places of lines in its text."""
        if refused.code == MORE_KEYS and self.few is not None:
            self.few.lack()
        refused.verb = self.script.name
        text = self.script.library.explain(refused.verb, refused.text)
        return refused if text == refused.text else Refused(refused.code, text, refused.verb)

    @property
    def call(self) -> Call:
        """Itself: see `Sendable`."""
        return self

    @property
    def changes(self) -> bool:
        """Whether it may change something."""
        return not self.script.readonly


class Sendable(Protocol):
    """The part of one call that a driver can send: a `request` to the node of `key`. It stands for `call`."""

    @property
    def key(self) -> str:
        """A key of the call."""

    def request(self, form: Form) -> bytes:
        """Return the bytes of the command in this form."""

    @property
    def until(self) -> float:
        """The local time at which the caller gives up."""

    @property
    def on_send(self) -> Callable[[], None] | None:
        """As that of a call."""

    @property
    def replicas(self) -> int:
        """How many replicas must confirm what it writes."""

    @property
    def call(self) -> Call:
        """The call."""


class Batch(msgspec.Struct, frozen=True):
    """Run several calls in one round trip to each node. The reply is a list: for each call its reply or its failure.

    The caller gives up at local time `until`. Calls for one node run in their order. If one is refused with a code of
    `RESENT_ALONE`, the driver sends it again, when those behind it have run already. With `once` it does not do so for
    two calls of one queue; nor does it send those again at the indexes that `once` names.

    The calls at the indexes `may_be_late` are waited for `patience` seconds. The outcome of one without an answer then
    is `Late`.
    """

    calls: tuple[Sendable, ...]
    until: float = math.inf
    once: bool | frozenset[int] = False
    may_be_late: frozenset[int] = frozenset()
    patience: float = math.inf


class Late(msgspec.Struct, frozen=True):
    """Wait for the answers to calls of a batch, at the indexes `at`, that were not there in time.

    The reply is a list: for each its reply or its failure. The driver has the `pending` exchange that brings them.
    """

    pending: Any
    at: tuple[int, ...]


class Armed(msgspec.Struct, frozen=True):
    """Wait up to `block_ms` ms for up to `count` entries of a stream, and run `call` at the moment when this wait ends.

    The entries are notifications, each for one reader; or with `after` all that come after that id, there or in one of
    the `others`, which are streams of the same slot. There are three answers, and each can be a `Refused`: the server's
    time before the wait (seconds, microseconds; None unless it is `timed`), the entries, the reply to `call` (if there
    is one: None only waits). At local time `wake_at` there is a reason to end the wait. `waiting` are those for whom it
    is (a `Waiting` of `ops/read/waiting.py`).
    """

    key: str
    count: int
    block_ms: int
    call: Call | None
    wake_at: float
    waiting: Any
    after: str | None = None
    timed: bool = False
    others: tuple[str, ...] = ()


class Wait(msgspec.Struct, frozen=True):
    """Let `waiter` (`ops/read/waiting.py`) wait on the queue of `state`, together with other waiters, until it is done.

    While there are any, `pump` looks on behalf of all.
    """

    state: QueueState
    waiter: Any
    pump: Callable[[QueueState], Op[None]]


class Share(msgspec.Struct):
    """Make a call for `item`, alone or with others on `coalescer` (`ops/sharing`), until local time `until`.

    The reply is the result of this caller. An error is raised from the operation, which does not see it.
    """

    coalescer: Any
    item: Any
    until: float


def forget_keys(keys: QueueKeys | RouterKeys) -> None:
    """Forget the words that were packed for calls on *keys*, which hold nothing: their name may never come again."""
    for script, named in [*keys.declared.items()]:
        if named:
            forget(load(script), named)


@dataclass(slots=True)
class Ask:
    """Run one plain command, such as INFO. The reply is raw. A command about a key goes to the node that owns `key`.

    The caller gives up at local time `until`. Nearly all only read; one that `changes` something must say so.
    """

    words: tuple[Argument, ...]
    key: str | None = None
    until: float = field(default=math.inf, compare=False)
    changes: bool = field(default=False, compare=False)


class Sleep(msgspec.Struct, frozen=True):
    """Pause between two tries."""

    seconds: float


class Known(msgspec.Struct, frozen=True):
    """The outcome of some items of a shared call, which continues for the others. Only `SharedCall` sees it."""

    results: Sequence[tuple[Any, Any]]
    """Items, and the result or error of each."""


Step: TypeAlias = Call | Batch | Late | Armed | Wait | Share | Ask | Sleep | Known
Op: TypeAlias = Generator[Step, Any, T]


class Refused(Exception):
    """The server answered with an error, so it executed nothing.

    `code` is the error's first word. `verb` is what was called, '' if that was a plain command.
    """

    def __init__(self, code: str, text: str, verb: str = "") -> None:
        super().__init__(f"{code} {text}".strip())
        self.code = code
        self.text = text
        self.verb = verb


class Unanswered(Exception):
    """No answer came. `sent` says whether the server may have executed the call."""

    def __init__(self, text: str, *, sent: bool) -> None:
        super().__init__(text)
        self.sent = sent


class Withdrawn(Unanswered):
    """The call was not sent, because somebody who shared it has left meanwhile."""

    def __init__(self) -> None:
        super().__init__("withdrawn before it was sent", sent=False)


class Underreplicated(Exception):
    """The call was answered with `reply`, but only `confirmed` replicas confirmed in time what it wrote.

    `refused` is set if the server refused WAIT, so that no replica was asked. Whether the call wrote anything is in the
    reply.
    """

    def __init__(self, reply: Any, confirmed: int, refused: Refused | None = None) -> None:
        super().__init__(f"{confirmed} replicas confirmed")
        self.reply = reply
        self.confirmed = confirmed
        self.refused = refused

    def explain(self, wanted: int) -> str:
        """Return a text for a user who *wanted* this many replicas to confirm."""
        if self.refused is not None:
            return (
                f"Redis refused to wait for {wanted} replicas ({self.refused}), so it is unknown whether they have it; "
                "`shardq server acl ROLE QUEUE --durability LEVEL` prints the rights that it takes"
            )
        return f"{self.confirmed} of {wanted} replicas confirmed in time; a failover now could lose it"
