"""Steps as Redis commands, and what the answers mean: shared by both drivers."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from hiredis import pack_command

from shardq.ops.retry import TRANSIENT
from shardq.ops.steps import Armed, Call, Refused, Unanswered, Underreplicated

Word: TypeAlias = str | bytes | int | float
Command: TypeAlias = tuple[Word, ...]

CONNECT_TIMEOUT: Final = 2.0
COMMAND_TIMEOUT: Final = 5.0
REPLICA_TIMEOUT_MS: Final = 1000
BLOCK_MARGIN: Final = 3.0
GROUP: Final = "shardq"
CLOSED_MEANWHILE: Final = "this client was closed meanwhile; the call may have happened"
CLOSED_WHILE_WAITING: Final = "this client was closed while a read waited"

MIN_PAUSE: Final = 0.001
MAX_PAUSE: Final = 0.05
"""Seconds after which a wait that did not end is told once more to end: at first, and at most."""

_DEMOTED: Final = TRANSIENT | {"WAIT"}
"""What WAIT is answered by a node that is no master any more; one such answer begins "WAIT cannot be used"."""


def commands_of(call: Call, *, by_source: bool, timeout: float) -> tuple[Command, ...]:
    """The call by hash or by source, and the wait for replicas, shorter than *timeout*, that goes with it."""
    verb = "EVAL" if by_source else "EVALSHA"
    if call.script.readonly:
        verb += "_RO"
    body = call.script.source if by_source else call.script.sha
    run: Command = (verb, body, len(call.keys), *call.keys, *call.args)
    return (run, ("WAIT", call.replicas, min(REPLICA_TIMEOUT_MS, round(timeout * 600)))) if call.replicas else (run,)


def outcome_of(call: Call, replies: list[Any]) -> Any:
    """What a call ended with, by the answers to its commands: its reply, or what is to be raised.

    The script's answer comes first. Once it acted, a refused WAIT makes nothing undone: the outcome is unknown.
    """
    reply, *confirmed = replies
    if isinstance(reply, Refused) or not confirmed:
        return reply
    if not isinstance(confirmed[0], Refused):
        return reply if confirmed[0] >= call.replicas else Underreplicated(reply, confirmed[0])
    if confirmed[0].code in _DEMOTED:  # the next master may lack what the call wrote: ask that one
        return Unanswered(f"{confirmed[0].code} instead of replicas that confirm", sent=True)
    return Underreplicated(reply, 0, confirmed[0])


def waiting_for(key: str, count: int, milliseconds: int | None) -> Command:
    """Wait for up to *count* notifications, as one of the group: each wakes exactly one waiter. None: do not wait."""
    block: Command = () if milliseconds is None else ("BLOCK", milliseconds)
    return ("XREADGROUP", "GROUP", GROUP, "reader", "COUNT", count, *block, "NOACK", "STREAMS", key, ">")


def armed(step: Armed) -> tuple[Command, ...]:
    """Who am I, what time is it, then wait, then read. The server runs the read when the wait ends."""
    wait = waiting_for(step.key, step.count, step.block_ms)
    return (("CLIENT", "ID"), ("TIME",), wait, *commands_of(step.call, by_source=False, timeout=0))


def number_of(answers: list[Any]) -> int | None:
    """What its server calls the connection of an armed read, once it has said so: the first of *answers*."""
    return answers[0] if answers and isinstance(answers[0], int) else None


def packed(commands: tuple[Command, ...]) -> list[bytes]:
    """The bytes to send; what redis-py's own packing adds costs as much again for each argument."""
    return [b"".join(pack_command(command) for command in commands)]  # type: ignore[arg-type, unused-ignore] # stubs lie
