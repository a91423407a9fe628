"""Decide which exchanges with servers a step takes, and what their answers mean. Both drivers share it. No I/O.

An operation yields steps. For each step, a generator here yields exchanges. The driver carries out each exchange and
sends its answers in, or throws `Refused` or `Unanswered`. Everything that follows from the answers alone is decided
here: scripts that a server does not know, slots that other nodes own, nodes that are gone, replicas that confirm.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from shardq.clock import Clock
from shardq.drivers.failures import Redirected
from shardq.drivers.forms import Forms
from shardq.drivers.permits import MIN_TRY, AllBusy
from shardq.drivers.sending import Sending
from shardq.drivers.target import Address
from shardq.drivers.topology import Topology, by_owner
from shardq.drivers.wire import CONNECT_TIMEOUT, Command, commands_of, outcome_of
from shardq.ops.queue.steps import RESENT_ALONE, Ask, Batch, Call, Late, Refused, Unanswered, Underreplicated, Withdrawn
from shardq.protocol.keys import slot
from shardq.protocol.script import Form

T = TypeVar("T")
REDIRECTIONS: Final = 5


class Exchange(msgspec.Struct):
    """One round trip to the node at `address`, or to the only node if that is None. It has an answer for each command.

    The caller gives up at local time `until`. For a call, `sending` knows what must be sent after the answers, under
    the same permit. If `server` is given, only a connection to that server may be used. `on_send` is that of the call.
    """

    address: Address | None
    commands: tuple[Command, ...]
    until: float
    sending: Sending | None = None
    server: Any = None
    on_send: Callable[[], None] | None = None

    def follow_up(self, answers: list[Any]) -> tuple[Command, ...]:
        """Return the commands to send after *answers* under the same permit; () if they are those that were wanted."""
        return self.sending.follow_up(answers) if self.sending is not None else ()


class Together(msgspec.Struct, frozen=True):
    """Exchanges with several nodes at once, one with each. The reply has for each its answers, or its failure.

    Nothing is sent after the answers of any of them. Those that `may_be_late` are waited for `patience` seconds: after
    them, the exchange with which the driver continues is in the place of the answers, in `Pending`.
    """

    exchanges: tuple[Exchange, ...]
    may_be_late: tuple[bool, ...] = ()
    patience: float = math.inf


class Pending:
    """An exchange that had no answer in time. The driver continues to wait for it, and makes what it `awaits`.

    `outcomes` says what its end means for each of its calls.
    """

    def __init__(self, awaits: Any) -> None:
        self.awaits = awaits
        self.outcomes: Callable[[Any], dict[int, Any]] = lambda _: {}


Exchanging: TypeAlias = Generator[Exchange, list[Any], T]
Batching: TypeAlias = Generator[Exchange | Together, list[Any], list[Any]]


class Exchanges:
    """The exchanges of one client. It remembers which node owns a slot, and whether the ACL denies CLIENT UNBLOCK."""

    def __init__(self, topology: Topology | None, clock: Clock, timeout: float) -> None:
        self.topology = topology
        self.timeout = timeout
        self.forms = Forms(clock)
        self._clock = clock
        self._may_unblock = True

    def left(self, until: float) -> float:
        """Return how many seconds a try has if its caller gives up at local time *until*."""
        return max(MIN_TRY, until - self._clock.monotonic())

    def limit(self, until: float) -> float:
        """Return for how many seconds a server may be silent if the caller gives up at local time *until*."""
        return min(self.timeout, self.left(until))

    def of(self, step: Call | Ask) -> Exchanging[Any]:
        """Yield the exchanges that *step* takes. Return its reply, or raise its failure."""
        return self._call(step, step.until) if isinstance(step, Call) else self._ask(step)

    def of_batch(self, batch: Batch) -> Batching:
        """Do as `of` for *batch*, to all nodes at once. Return the outcome of each call.

        Calls for one node go together, refused ones again (see `RESENT_ALONE`).
        """
        calls, until = [each.call for each in batch.calls], batch.until
        outcomes: list[Any] = [None] * len(calls)
        parts = [self._part(calls, *each, until) for each in by_owner(self.topology, calls).items()]
        for part, ended in zip(parts, (yield from _at_once(parts, batch)), strict=True):
            if isinstance(ended, Pending):
                ended.outcomes = partial(self._ended, part, calls)
                outcomes_of_part = {at: Late(ended, (at,)) for at in part.indexes}
            else:
                outcomes_of_part = self._ended(part, calls, ended)
            for at, outcome in outcomes_of_part.items():
                outcomes[at] = outcome
        # These were refused, so nothing of them was executed, and those behind them have run already.
        kept = range(len(calls)) if batch.once is True else batch.once or ()
        for at, ended in enumerate(outcomes):
            if isinstance(ended, Refused) and ended.code in RESENT_ALONE and at not in kept:
                outcomes[at] = yield from self._outcome(calls[at], until)
        return outcomes

    def _ended(self, part: ExchangePart, calls: Sequence[Call], ended: Any) -> dict[int, Any]:
        """Return the outcome of each call of *part*, whose exchange *ended* with answers or failed."""
        if isinstance(ended, (Refused, Unanswered)):
            for at in part.indexes:
                self.lost(calls[at].keys[0], part.exchange.address, ended)
        return dict(part.outcomes(calls, ended))

    def sending(
        self, call: Call, until: float, address: Address | None, form: Form, *, asking: bool = False
    ) -> Sending:
        """Return what sends *call* to that node, at first in this *form*."""
        limit = self.limit(until) if call.replicas else self.timeout
        return Sending(call, self.forms, address, form, limit, asking=asking)

    def _exchange(self, call: Call, until: float, address: Address | None, *, asking: bool) -> Exchange:
        sending = self.sending(call, until, address, self.forms.of(address), asking=asking)
        return Exchange(address, sending.commands, until, sending, None, call.on_send)

    def unblocked(self, number: int | None, address: Address | None, server: Any) -> Exchanging[None]:
        """End the blocking wait of connection *number* of *server*.

        It must reach exactly that server: on another one the number belongs to another client's connection. If the ACL
        denies CLIENT UNBLOCK, or the server cannot be reached, the wait ends by itself later.
        """
        if number is None or not self._may_unblock:
            return
        until = self._clock.monotonic() + CONNECT_TIMEOUT
        try:
            (answer,) = yield Exchange(address, (("CLIENT", "UNBLOCK", number),), until, server=server)
        except (Refused, Unanswered):
            return
        if isinstance(answer, Refused):
            # Where it is denied, waits end by themselves from now on.
            self._may_unblock = answer.code not in ("NOPERM", "ERR")

    def owner(self, key: str) -> Address | None:
        """Return the address of the node that owns *key*; None if there is a single node."""
        return None if self.topology is None else self.topology.owner(slot(key))

    def lost(self, key: str, address: Address | None, failure: Refused | Unanswered) -> None:
        """Note that an exchange with *address* about *key* ended with *failure*. The next try may use another node.

        `AllBusy` and `Withdrawn` say nothing about the node, so they do not count.
        """
        if self.topology is None or address is None:
            return
        if isinstance(failure, Unanswered) and not isinstance(failure, (AllBusy, Withdrawn)):
            self.topology.lost(slot(key), address)

    def _call(self, call: Call, until: float) -> Exchanging[Any]:
        if self.topology is None:
            return _reply_of(call, (yield self._exchange(call, until, None, asking=False)))
        try:
            answers = yield from self._send_to_owner(call.keys[0], partial(self._exchange, call, until))
        except Refused as refused:
            raise call.explain(refused) from None
        return _reply_of(call, answers)

    def _ask(self, ask: Ask) -> Exchanging[Any]:
        def exchange(address: Address | None, *, asking: bool) -> Exchange:
            return Exchange(address, (("ASKING",), ask.words) if asking else (ask.words,), ask.until)

        answers = yield from self._send_to_owner(ask.key or "", exchange)
        return answers[0]

    def _part(
        self, calls: Sequence[Call], address: Address | None, indexes: Sequence[int], until: float
    ) -> ExchangePart:
        """Return the part of a batch that goes to the node at *address*: the calls at these *indexes*."""
        form, limit = self.forms.of(address), self.limit(until)
        sent = [commands_of(calls[at], form, timeout=limit) for at in indexes]
        on_send = _on_send([calls[at] for at in indexes])
        exchange = Exchange(address, tuple(chain(*sent)), until, on_send=on_send)
        return ExchangePart(exchange, indexes, [len(commands) for commands in sent])

    def _outcome(self, call: Call, until: float) -> Exchanging[Any]:
        """Do as `_call`, but return a failure instead of raising it."""
        try:
            return (yield from self._call(call, until))
        except (Refused, Unanswered, Underreplicated) as failure:
            return failure

    def _send_to_owner(self, key: str, exchange: Callable[..., Exchange]) -> Exchanging[list[Any]]:
        """Make that *exchange* with the node that owns *key*, and follow redirections. Raise a refusal of its command.

        *exchange* takes the address of the node, and whether it needs ASKING. The caller reads the answers to the other
        commands.
        """
        if self.topology is None:
            return _first((yield exchange(None, asking=False)))
        number = slot(key)
        address, asking = self.topology.owner(number), False
        for _ in range(REDIRECTIONS):
            try:
                answers = _first((yield exchange(address, asking=asking)))
                return _first(answers[1:]) if asking else answers
            except Redirected as to:
                asking = to.code == "ASK"
                # An empty host means the one that answered.
                address = (to.address[0] or address[0], to.address[1])
                # ASK is for this one call, while a slot is on its way; MOVED is for good.
                (self.topology.add(address) if asking else self.topology.moved(number, address))
            except Unanswered as failure:
                self.lost(key, address, failure)
                raise
        raise Refused("TRYAGAIN", "the slot's owner kept changing")


class ExchangePart(msgspec.Struct, frozen=True):
    """A batch's part for one node, by `exchange`: the `indexes` of its calls, and the number of commands of each.

    `sizes` are these numbers.
    """

    exchange: Exchange
    indexes: Sequence[int]
    sizes: Sequence[int]

    def outcomes(self, calls: Sequence[Call], ended: Any) -> Iterator[tuple[int, Any]]:
        """Yield for each of its calls the index and the outcome, after the exchange *ended* with answers or failed."""
        if isinstance(ended, Exception):
            yield from ((at, ended) for at in self.indexes)
            return
        answers = iter(ended)
        for at, size in zip(self.indexes, self.sizes, strict=True):
            yield at, outcome_of(calls[at], [next(answers) for _ in range(size)])


def _at_once(parts: Sequence[ExchangePart], batch: Batch) -> Batching:
    """Make the exchanges of these *parts*, with several nodes at once. Return for each its answers or its failure."""
    exchanges = [part.exchange for part in parts]
    if batch.may_be_late:
        may_be_late = tuple([batch.may_be_late.issuperset(part.indexes) for part in parts])
        return (yield Together(tuple(exchanges), may_be_late, batch.patience))
    if len(exchanges) != 1:
        return (yield Together(tuple(exchanges))) if exchanges else []
    try:
        return [(yield exchanges[0])]
    except (Refused, Unanswered) as failure:
        return [failure]


def _on_send(calls: Sequence[Call]) -> Callable[[], None] | None:
    """Return what says of each of *calls* that it is sent now. If one is withdrawn, none of them is sent."""
    told = [call.on_send for call in calls if call.on_send is not None]
    if not told:
        return None

    def tell() -> None:
        for each in told:
            each()

    return tell


def _reply_of(call: Call, answers: list[Any]) -> Any:
    """Return the reply to *call* that its *answers* contain, or raise its failure."""
    ended = outcome_of(call, answers)
    if isinstance(ended, Exception):
        raise ended
    return ended


def _first(answers: list[Any]) -> list[Any]:
    """Return *answers*, or raise a refusal of the first command."""
    if isinstance(answers[0], Refused):
        raise answers[0]
    return answers
