"""Turn steps into Redis commands, and read the answers. Both drivers share it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from shardq.ops.queue.retry import TRANSIENT
from shardq.ops.queue.steps import Argument, Armed, Call, Refused, Sendable, Unanswered, Underreplicated
from shardq.protocol.packing import pack
from shardq.protocol.script import SOURCE, Form

Command: TypeAlias = tuple[Argument, ...]

CONNECT_TIMEOUT: Final = 2.0
COMMAND_TIMEOUT: Final = 5.0
REPLICA_TIMEOUT_MS: Final = 1000
BLOCK_MARGIN: Final = 3.0
GROUP: Final = "shardq"
CLOSED_MEANWHILE: Final = "this client was closed during the call, which may have been executed"
CLOSED_WHILE_WAITING: Final = "this client was closed while a read waited"

MIN_PAUSE: Final = 0.001
MAX_PAUSE: Final = 0.05
"""Seconds until CLIENT UNBLOCK is sent again to a wait that did not end: at first, and at most."""

_DEMOTED: Final = TRANSIENT | {"WAIT"}
"""Codes with which a node answers WAIT if it is no longer a master. One such answer begins "WAIT cannot be used"."""


class ScriptCommand(tuple[Argument, ...]):  # noqa: SLOT001 - a tuple of any length has none
    """The command that runs a call in some `form`. Its `call` knows its bytes, so the words need not be packed."""

    call: Call
    form: Form


def commands_of(call: Call, form: Form, *, timeout: float) -> tuple[Command, ...]:
    """Return the command for *call* in this form, and if it needs replicas a WAIT shorter than *timeout*."""
    run: Command = (*call.script.command(form), len(call.keys), *call.keys, *call.args)
    if form is not SOURCE:
        run = ScriptCommand(run)
        run.call, run.form = call, form
    return (run, ("WAIT", call.replicas, min(REPLICA_TIMEOUT_MS, round(timeout * 600)))) if call.replicas else (run,)


def outcome_of(call: Call, replies: list[Any]) -> Any:
    """Return the outcome of a call, given the answers to its commands: its reply, or the exception to raise.

    The first answer is that of the script. If WAIT is refused after it, the script has still been executed.
    """
    reply, *confirmed = replies
    if isinstance(reply, Refused):
        return call.explain(reply)
    if not confirmed:
        return reply
    if not isinstance(confirmed[0], Refused):
        return reply if confirmed[0] >= call.replicas else Underreplicated(reply, confirmed[0])
    if confirmed[0].code in _DEMOTED:  # the next master may lack what the call wrote, so the call is repeated there
        return Unanswered(f"the node answered WAIT with {confirmed[0].code}, so no replica confirmed", sent=True)
    return Underreplicated(reply, 0, confirmed[0])


def explained(calls: Sequence[Sendable], outcomes: list[Any]) -> list[Any]:
    """Return the *outcomes* of *calls* with the places of lines in refusals, as `outcome_of` gives them."""
    return [
        call.call.explain(outcome) if isinstance(outcome, Refused) else outcome
        for call, outcome in zip(calls, outcomes, strict=True)
    ]


def waiting_for(key: str, count: int, milliseconds: int | None) -> Command:
    """Return the command that waits for up to *count* notifications; without *milliseconds* it does not wait.

    It reads as a member of a consumer group, so each notification wakes exactly one reader.
    """
    block: Command = () if milliseconds is None else ("BLOCK", milliseconds)
    return ("XREADGROUP", "GROUP", GROUP, "reader", "COUNT", count, *block, "NOACK", "STREAMS", key, ">")


def armed(step: Armed, form: Form, number: int | None) -> tuple[Command, ...]:
    """Return the commands of an armed read: CLIENT ID, TIME, XREADGROUP or XREAD with BLOCK, a call in this form.

    They are sent in one pipeline. The server runs the call when the block ends. The first is left out if the *number*
    of the connection is known, and the second unless the read is timed: their answers would wake the client.
    """
    if step.after is None:
        wait = waiting_for(step.key, step.count, step.block_ms)
    else:
        keys = (step.key, *step.others)
        wait = ("XREAD", "COUNT", step.count, "BLOCK", step.block_ms, "STREAMS", *keys, *(step.after,) * len(keys))
    calls = commands_of(step.call, form, timeout=0) if step.call else ()
    asked: tuple[Command, ...] = (("CLIENT", "ID"),) if number is None else ()
    return (*asked, ("TIME",), wait, *calls) if step.timed else (*asked, wait, *calls)


def number_of(answers: list[Any]) -> int | None:
    """Return the connection's id, the first of the *answers* to an armed read; None if it has not come."""
    return answers[0] if answers and isinstance(answers[0], int) else None


def told(step: Armed, answers: list[Any]) -> list[Any]:
    """Return the answers that *step* wants, given all *answers* to its commands."""
    last = 1 + step.timed + (step.call is not None)
    wanted = answers[-last:]
    return wanted if step.timed else [None, *wanted]


def packed(commands: tuple[Command, ...]) -> bytes:
    """Return the bytes to send for *commands*."""
    found = [
        command.call.request(command.form) if isinstance(command, ScriptCommand) else pack(command)
        for command in commands
    ]
    return found[0] if len(found) == 1 else b"".join(found)
