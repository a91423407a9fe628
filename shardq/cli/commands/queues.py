"""`shardq queues`: which queues need you, and how each is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardq.cli.exits import FAILED, OK, NothingThere
from shardq.cli.looking import looked_at
from shardq.cli.output import remark
from shardq.cli.parsing import Args, command, flag
from shardq.cli.screens.queues import STATES, lines
from shardq.cli.shell import Shell
from shardq.cli.watching import watch
from shardq.errors import BackendError, BackendTimeout
from shardq.outlook.queues import QueueLook, worst_first

if TYPE_CHECKING:
    from shardq.model import QueueStats

ABOUT = f"""The first line says which queues need you, and why; the table has the worst first.

STATE is one of {", ".join(STATES.values())}. WAITING is the backlog, FLIGHT what is leased to workers, DEAD the dead
letters, OLDEST how long the oldest message that could be delivered has waited. DRAINS says in which time the backlog
is served, as things go: grows if more comes than goes, stands if nothing is delivered. BUSY is how many of the
workers' slots are busy.

A queue whose keys are gone, since Redis lost them, is shown as missing; one that this user may not read, as
unreadable, and the exit code is 1 then. Exit code 3 if there is no queue."""

EXAMPLES = """  shardq queues
  shardq queues --watch 10s
  shardq queues --json | jq -r 'select(.needs_you) | .sentence'"""


@command(ABOUT, EXAMPLES)
@flag("watch")
def run(args: Args, shell: Shell) -> int:
    """Show each queue. One that cannot be read does not hide the others."""
    names = shell.client.queues()
    if not names and args.watch is None:
        raise NothingThere("there are no queues")
    unreadable = False

    def look() -> tuple[list[str], list[dict[str, Any]]]:
        nonlocal unreadable
        looks = worst_first([_look(shell, name) for name in shell.client.queues()])
        unreadable = any(each.stats is None for each in looks)
        return lines(looks), [_fields(each, each.stats) for each in looks if each.stats is not None]

    watch(args, shell, look)
    return FAILED if unreadable else OK


def _look(shell: Shell, name: str) -> QueueLook:
    from shardq.ops.inspect.stats import numbers
    from shardq.outlook.together import statistics
    from shardq.partitions.over import over

    queue = shell.queue(name)
    try:
        stats = shell.client.run(over(queue.state, numbers, statistics, looks=True))
    except BackendTimeout:
        raise
    except BackendError as error:
        remark(f"queue {name!r}: {error}")
        return QueueLook(name, None)
    return looked_at(queue, stats)


def _fields(look: QueueLook, now: QueueStats) -> dict[str, Any]:
    verdict, outlook = look.verdict, look.outlook
    return {
        "queue": look.name,
        "exists": bool(now.streams),
        "needs_you": look.needs_you,
        "state": verdict.kind if verdict else None,
        "severity": verdict.severity if verdict else None,
        "sentence": verdict.sentence if verdict else None,
        "second": verdict.second if verdict else None,
        "since": verdict.since if verdict else None,
        "backlog": now.backlog,
        "in_flight": now.in_flight,
        "delayed": now.delayed,
        "dead": now.dead,
        "oldest_age": now.oldest_age,
        "streams": now.wanted,
        "drains": outlook.drains if outlook else None,
        "drain_seconds": outlook.drain_seconds if outlook else None,
        "workers": outlook.workers if outlook else None,
        "slots": outlook.slots if outlook else None,
        "busy": outlook.busy if outlook else None,
    }
