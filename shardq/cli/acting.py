"""An action on many messages, as a command runs it: it counts, asks, shows how far it is, and can be stopped."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shardq.cli.exits import FAILED, INTERRUPTED, OK, NothingThere
from shardq.cli.filters import told
from shardq.cli.output import remark, say, say_over
from shardq.cli.parsing import Args
from shardq.cli.shell import Shell, asked_by
from shardq.cli.text import plural
from shardq.model.action import ActionKind, ActionStatus
from shardq.model.where import Where
from shardq.ops.operate.counting import count
from shardq.partitions.over import over
from shardq.partitions.sums import total

if TYPE_CHECKING:
    from shardq.client import Action

SHOWN_EVERY: Final = 0.5
"""Seconds between two lines that say how far it is."""


class ActionWords(NamedTuple):
    """An action in words: "Redrive" 12 messages, which are "moved" then; `noun` is the word for one of them."""

    kind: ActionKind
    verb: str
    done: str
    noun: str = "message"


def act(shell: Shell, args: Args, doing: ActionWords, where: Where, begin: Callable[..., Action]) -> int:
    """Count what *where* selects, ask, and act on it. Return the exit code; Nothing if there is none.

    *begin* is the method of the queue that begins the action.
    """
    queue, now = shell.existing(args.queue)
    each = over(queue.state, lambda state: count(state, doing.kind, where, now.time, args.limit, None), total)
    found = shell.client.run(each)
    if args.limit is not None:
        found = min(found, args.limit)
    if not found:
        raise NothingThere(f"queue {args.queue!r} has no such {doing.noun}s")
    change = f"{doing.verb} {plural(found, doing.noun)}{told(where)} in queue {args.queue!r}"
    if not shell.goes_on(args, change, {"queue": args.queue, "found": found}):
        return OK
    action = begin(where, rate=args.rate, limit=args.limit, **asked_by(args))
    return follow(shell, args.queue, doing, action, found)


def follow(shell: Shell, name: str, doing: ActionWords, action: Action, found: int | None = None) -> int:
    """Run *action* to its end, and show how far it is. Ctrl-C stops it, and says how to continue."""
    is_shown = sys.stderr.isatty() and not shell.json
    of = "" if found is None else f" of {found:,}"
    try:
        status = action.wait(SHOWN_EVERY)
        while not status.is_over:
            if is_shown:
                say_over(f"{doing.done} {status.done:,}{of} {doing.noun}s; Ctrl-C stops it")
            status = action.wait(SHOWN_EVERY)
    except (KeyboardInterrupt, SystemExit) as end:
        _end_line(is_shown=is_shown)
        status = _stopped(action)
        shell.show(*_result(name, doing, status))
        remark("stopped: the same command continues with the rest")
        if isinstance(end, SystemExit):  # SIGTERM
            raise
        return INTERRUPTED
    _end_line(is_shown=is_shown)
    shell.show(*_result(name, doing, status))
    if status.state == "stopped":
        remark("somebody stopped it: the same command continues with the rest")
    if status.problem:
        remark(f"it ended before its end: {status.problem}")
    return OK if status.state == "done" else FAILED


def _stopped(action: Action) -> ActionStatus:
    """Stop *action*, and let its last piece say so."""
    action.stop()
    return action.wait()


def _end_line(*, is_shown: bool) -> None:
    if is_shown:
        say(file=sys.stderr)


def _result(name: str, doing: ActionWords, status: ActionStatus) -> tuple[str, dict[str, Any]]:
    passed = f"; {plural(status.passed, doing.noun)} had changed" if status.passed else ""
    return f"{plural(status.done, doing.noun)} {doing.done}{passed}", {
        "queue": name, "action": status.id, "state": status.state, "done": status.done, "passed": status.passed,
    }  # fmt: skip
