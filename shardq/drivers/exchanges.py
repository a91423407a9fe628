"""Which exchanges with servers a step takes, and what it ended with: the same for both drivers, and without I/O.

An operation yields steps; a step is answered by generators that yield exchanges. The driver carries out each exchange
and sends in its answers, or throws in `Refused` or `Unanswered`. Whatever can be judged by the answers alone is judged
here: scripts that a server does not know, slots that other nodes own, nodes that are gone, replicas that confirm.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final, TypeAlias, TypeVar

from shardq.clock import Clock
from shardq.drivers.failures import Redirected
from shardq.drivers.permits import MIN_TRY, AllBusy
from shardq.drivers.target import Address
from shardq.drivers.topology import Topology, by_owner
from shardq.drivers.wire import CONNECT_TIMEOUT, Command, commands_of, outcome_of
from shardq.ops.steps import Ask, Batch, Call, Refused, Unanswered, Underreplicated
from shardq.protocol.keys import slot

T = TypeVar("T")
REDIRECTIONS: Final = 5
RESENT_ALONE: Final = frozenset({"NOSCRIPT", "MOVED", "ASK"})
"""Refusals after which one call of a batch is sent again by itself: it needs its source, or another node."""


@dataclass(slots=True)
class Exchange:
    """One round trip to the node at `address`, None being the only one there is: an answer for each of `commands`.

    The caller gives up at local time `until`. Where the server does not know the script of the first command, `whole`
    makes the commands that carry its source; they are sent under the same permit. If a `server` is given, only a
    connection that leads to that one will do.
    """

    address: Address | None
    commands: tuple[Command, ...]
    until: float
    with_source: Callable[[], tuple[Command, ...]] | None = None
    server: Any = None

    def rest(self, answers: list[Any]) -> tuple[Command, ...]:
        """What is to be sent after *answers*, under the same permit: the script's source where the server lacks it."""
        if self.with_source is not None and isinstance(answers[0], Refused) and answers[0].code == "NOSCRIPT":
            return self.with_source()
        return ()


Exchanging: TypeAlias = Generator[Exchange, list[Any], T]


class Exchanges:
    """The exchanges of one client. It knows what all of them taught it: who owns which slot, what the ACL denies."""

    def __init__(self, topology: Topology | None, clock: Clock, timeout: float) -> None:
        self.topology = topology
        self.timeout = timeout
        self._clock = clock
        self._may_unblock = True

    def left(self, until: float) -> float:
        """Seconds that a try has whose caller gives up at local time *until*."""
        return max(MIN_TRY, until - self._clock.monotonic())

    def limit(self, until: float) -> float:
        """Seconds for which a server may be silent in a try whose caller gives up at local time *until*."""
        return min(self.timeout, self.left(until))

    def of(self, step: Call | Batch | Ask) -> Exchanging[Any]:
        """The exchanges that *step* takes; its reply, or its failure is raised."""
        match step:
            case Call():
                return self._call(step, step.until)
            case Batch():
                return self._batch(step.calls, step.until)
            case Ask():
                return self._ask(step)

    def plain(self, call: Call, until: float) -> Exchange:
        """All that *call* takes where there is but one node: an exchange, whose answers `outcome` judges.

        Most calls are such, and a generator would cost them 2 % of the client's time.
        """
        limit = self.limit(until) if call.replicas else self.timeout
        with_source = partial(commands_of, call, by_source=True, timeout=limit)
        return Exchange(None, commands_of(call, by_source=False, timeout=limit), until, with_source)

    def unblocked(self, number: int | None, address: Address | None, server: Any) -> Exchanging[None]:
        """End the wait of connection *number* of *server*, at that very one: on another the number is a stranger's.

        Where the ACL denies it, or that server is not to be reached, the wait ends by itself.
        """
        if number is None or not self._may_unblock:
            return
        until = self._clock.monotonic() + CONNECT_TIMEOUT
        try:
            (answer,) = yield Exchange(address, (("CLIENT", "UNBLOCK", number),), until, server=server)
        except (Refused, Unanswered):
            return
        if isinstance(answer, Refused):
            self._may_unblock = answer.code not in ("NOPERM", "ERR")

    def owner(self, key: str) -> Address | None:
        """The address of the node to ask about *key*."""
        return None if self.topology is None else self.topology.owner(slot(key))

    def lost(self, key: str, address: Address | None, failure: Refused | Unanswered) -> None:
        """What was sent to *address* about *key* ended with *failure*: if the node may be gone, ask another next time.

        A node is not gone when only all connections to it were busy.
        """
        if self.topology is None or address is None:
            return
        if isinstance(failure, Unanswered) and not isinstance(failure, AllBusy):
            self.topology.lost(slot(key), address)

    def _call(self, call: Call, until: float) -> Exchanging[Any]:
        exchange = self.plain(call, until)
        if self.topology is None:
            return reply_of(call, (yield exchange))
        try:
            answers = yield from self._send_to_owner(call.keys[0], exchange.commands, until, exchange.with_source)
        except Refused as refused:
            if refused.code != "NOSCRIPT" or exchange.with_source is None:
                raise
            answers = yield from self._send_to_owner(call.keys[0], exchange.with_source(), until)
        return reply_of(call, answers)

    def _ask(self, ask: Ask) -> Exchanging[Any]:
        answers = yield from self._send_to_owner(ask.key or "", (ask.words,), ask.until)
        return answers[0]

    def _batch(self, calls: tuple[Call, ...], until: float) -> Exchanging[list[Any]]:
        """The outcome of each call. Those for one node go together; those that it did not run, by themselves."""
        outcomes: list[Any] = [None] * len(calls)
        limit = self.limit(until)
        for address, indexes in by_owner(self.topology, calls).items():
            sent = [commands_of(calls[at], by_source=False, timeout=limit) for at in indexes]
            try:
                answers = iter((yield Exchange(address, tuple(chain(*sent)), until)))
                for at, commands in zip(indexes, sent, strict=True):
                    outcomes[at] = outcome_of(calls[at], [next(answers) for _ in commands])
            except (Refused, Unanswered) as failure:
                for at in indexes:
                    outcomes[at] = failure
                    self.lost(calls[at].keys[0], address, failure)
        for at, ended in enumerate(outcomes):
            if isinstance(ended, Refused) and ended.code in RESENT_ALONE:
                outcomes[at] = yield from self._outcome(calls[at], until)
        return outcomes

    def _outcome(self, call: Call, until: float) -> Exchanging[Any]:
        """As `_call`, but a failure is what it returns."""
        try:
            return (yield from self._call(call, until))
        except (Refused, Unanswered, Underreplicated) as failure:
            return failure

    def _send_to_owner(
        self,
        key: str,
        commands: tuple[Command, ...],
        until: float,
        with_source: Callable[[], tuple[Command, ...]] | None = None,
    ) -> Exchanging[list[Any]]:
        """Send *commands* to the node that owns *key*, following redirections. Raises a refusal of the first command.

        The answers to the commands after it are for the caller to judge.
        """
        if self.topology is None:
            return _first((yield Exchange(None, commands, until, with_source)))
        number = slot(key)
        address, asking = self.topology.owner(number), False
        for _ in range(REDIRECTIONS):
            try:
                if asking:
                    answers = yield Exchange(address, (("ASKING",), *commands), until)
                    return _first(_first(answers)[1:])
                return _first((yield Exchange(address, commands, until, with_source)))
            except Redirected as to:
                asking = to.code == "ASK"
                address = (to.address[0] or address[0], to.address[1])
                (self.topology.add(address) if asking else self.topology.moved(number, address))
            except Unanswered as failure:
                self.lost(key, address, failure)
                raise
        raise Refused("TRYAGAIN", "the slot's owner kept changing")


def reply_of(call: Call, answers: list[Any]) -> Any:
    """The reply to *call* by its *answers*; a failure is raised."""
    ended = outcome_of(call, answers)
    if isinstance(ended, Exception):
        raise ended
    return ended


def _first(answers: list[Any]) -> list[Any]:
    """*answers*; a refusal of the first command is raised."""
    if isinstance(answers[0], Refused):
        raise answers[0]
    return answers
