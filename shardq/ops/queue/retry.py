"""Repeat one call until it is answered or its deadline comes, and raise the error that says what is known then.

how a try ended        what follows                         at the deadline
refused, will pass     a pause, and the next try            BackendTimeout: nothing was changed
not sent               a pause, and the next try            BackendTimeout
sent, no answer        the same, and the call says so     OutcomeUnknown, whatever the later tries said
refused for good       BackendError or OutOfMemory; OutcomeUnknown if an earlier try may have run

A call that only looks changes nothing, whether it was executed or not: its tries count as not sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any, Final, NoReturn

import msgspec

from shardq.backoff import Exponential
from shardq.clock import Clock
from shardq.errors import BackendError, BackendTimeout, OutcomeUnknown, OutOfMemory, ShardqError
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Argument, Ask, Call, Op, Refused, Sleep, Unanswered, Underreplicated

TRANSIENT = frozenset(
    {
        "ASK",
        "BUSY",
        "CLUSTERDOWN",
        "FAILOVER",
        "LOADING",
        "MASTERDOWN",
        "MISCONF",
        "MOVED",
        "NOREPLICAS",
        "READONLY",
        "TRYAGAIN",
        "UNBLOCKED",
    }
)
"""Refusals that go away by themselves: a slot that moves, a restart, a failover, a full disk."""

_PAUSE = Exponential(base=0.02, factor=2, cap=1.0)
_RANDOM = Random()  # for jitter, not for security

_DENIED = frozenset({"NOPERM", "ACL"})  # Redis says ACL when a command within a script is denied
UNKNOWN_USER = frozenset({"NOAUTH", "WRONGPASS"})

Maker = Callable[[bool], Call | Ask]
"""Makes the call. The argument says whether an earlier try may have been executed."""


def always(call: Call | Ask) -> Maker:
    """Return what makes this call each time: it is harmless to repeat."""
    return lambda _: call


class Same(msgspec.Struct):
    """Makes the same call each time. `repeated` says whether an earlier try may have been executed."""

    call: Call
    repeated: bool = False

    def __call__(self, repeated: bool) -> Call:
        """Return the call, and note whether it is a repetition."""
        self.repeated = self.repeated or repeated
        return self.call


def retry_until(
    make: Maker,
    until: float,
    clock: Clock,
    *,
    remembered: float = math.inf,
    begun_at: float | None = None,
    failed: Refused | Unanswered | None = None,
    looks: str = "",
) -> Op[Any]:
    """Yield the call that *make* makes until it is answered. Return the reply.

    The call must be harmless to repeat, or notice itself that it was executed before; *remembered* says for how many
    seconds after the first try it can. If the driver has made that try already, it was *begun_at*; if the caller has,
    *failed* is how it ended. If it only *looks*, though its verb can write, that says what did not happen. At *until*
    the tries end. Times are seconds of the local monotonic clock. Raises BackendTimeout if nothing was changed,
    OutcomeUnknown if a try may have changed something, OutOfMemory, or BackendError for a refusal that will not go
    away.
    """
    tries, last = 0, "no answer"
    only_looks = bool(looks)
    maybe_done: float | None = None  # when the first try was made that may have happened
    while True:
        # Only the first try was made before this began.
        tried_at, begun_at = clock.monotonic() if begun_at is None else begun_at, None
        # Redis may have forgotten the first try by now, so that one more would not be recognized.
        if maybe_done is not None and tried_at > maybe_done + remembered:  # this machine may have been suspended
            give_up(tries, last, maybe_done=True)
        try:
            if failed is not None:
                failure, failed = failed, None
                raise failure
            step = make(maybe_done is not None)
            only_looks = only_looks or not step.changes
            step.until = until
            return (yield step)
        except Refused as refused:
            if refused.code not in TRANSIENT:
                refuse(refused, maybe_done=maybe_done is not None)
            last = refused.code
        except Unanswered as lost:
            last = str(lost)
            if lost.sent and not only_looks and maybe_done is None:
                maybe_done = tried_at
                # The tries must end before Redis forgets the first one.
                until = min(until, tried_at + remembered)
        tries += 1
        pause = pause_after(tries)
        # A try that could begin only after the deadline is not waited for.
        if clock.monotonic() + pause > until:
            give_up(tries, last, maybe_done=maybe_done is not None, looks=looks)
        yield Sleep(pause)


def ask(state: QueueState, *words: Argument, key: str = "", until: float | None = None) -> Op[Any]:
    """Run a plain command about *key*, by default its first argument, until it is answered. Return the reply.

    It may only read. The tries end at local time *until*, or after the client's timeout.
    """
    command = Ask(words, key or str(words[1]))
    return (yield from retry_until(always(command), state.until() if until is None else until, state.clock))


def retry_replicated(
    make: Maker, until: float, clock: Clock, *, remembered: float = math.inf, begun_at: float | None = None
) -> Op[tuple[Any, Underreplicated | None]]:
    """Do as `retry_until`, for a call that waits for replicas.

    Return the reply, and `Underreplicated` if too few replicas confirmed the call, else None.
    """
    try:
        return (yield from retry_until(make, until, clock, remembered=remembered, begun_at=begun_at)), None
    except Underreplicated as underreplicated:
        return underreplicated.reply, underreplicated


def pause_after(tries: int) -> float:
    """Return how many seconds to wait after *tries* failed tries."""
    return _PAUSE(tries, _RANDOM)


def refuse(refused: Refused, *, maybe_done: bool = False) -> NoReturn:
    """Raise the error that a refusal means. If an earlier try may have been executed, that is OutcomeUnknown."""
    if maybe_done:
        raise OutcomeUnknown(
            f"an earlier try of this call got no answer and may have happened; now Redis refused it: {refused}"
        ) from refused
    if refused.code == "OOM":
        raise OutOfMemory("Redis is at maxmemory: nothing was written; let readers drain it or add memory") from refused
    if refused.code == "WRONGTYPE":
        raise BackendError(
            "a key of this queue holds another type, so another program wrote to it; nothing was changed. "
            "Delete or rename that key (see `TYPE` of the queue's keys)"
        ) from refused
    if refused.code in UNKNOWN_USER:
        raise BackendError(
            "Redis does not know this user: put a user and password that it knows into the URL, as in "
            f"redis://user:password@host:6379 ({refused})"
        ) from refused
    if is_denied(refused):
        raise BackendError(_denial(refused)) from refused
    raise BackendError(f"Redis refused the call: {refused}") from refused


def is_denied(refused: Refused) -> bool:
    """Return whether the user has no right to the call."""
    return refused.code in _DENIED or refused.text.startswith("The user executing the script can't")


def is_denial(error: ShardqError) -> bool:
    """Return whether *error* says that the user has no right to a call: it is refused however often it is made."""
    return isinstance(error.__cause__, Refused) and is_denied(error.__cause__)


_AFTER_SCRIPTS: Final = "; a user who may run no scripts needs the functions loaded: `shardq server lua load`"


def _denial(refused: Refused) -> str:
    """Return which right is missing, as far as Redis tells, and who has it."""
    from shardq.protocol.roles import ROLES  # a table that only who is denied something needs

    roles = [role.name for role in ROLES.values() if refused.verb in role.verbs.split()]
    if not roles:
        return (
            f"Redis denies this user a command ({refused}): `shardq server acl ROLE QUEUE` prints the rights of a role"
        )
    why = " to create the queue, or what is missing of it," if refused.verb == "open" else f" to call {refused.verb}"
    return (
        f"Redis denies this user the right{why} ({refused}): the role {' or '.join(roles)} has it, and "
        f"`shardq server acl {roles[0]} QUEUE` prints its rights{_AFTER_SCRIPTS if 'evalsha' in refused.text else ''}"
    )


def is_of_one(error: ShardqError) -> bool:
    """Return whether a refusal of a call may be due to one of its messages, such as one stream of another type."""
    refused = error.__cause__
    return type(error) is BackendError and isinstance(refused, Refused) and refused.code not in _DENIED | UNKNOWN_USER


def give_up(tries: int, last: str, *, maybe_done: bool, looks: str = "") -> NoReturn:
    """Raise the error for a call that got no answer: OutcomeUnknown if it may have been executed.

    Else *looks* says what did not happen, by default that nothing was changed.
    """
    silence = f"no answer from Redis after {tries} tries ({last})"
    if maybe_done:
        raise OutcomeUnknown(f"{silence}; the call may have happened")
    raise BackendTimeout(f"{silence}; {looks or 'nothing was changed'}")
