"""`shardq partitions`: where the parts of a queue are, and how each is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from shardq.cli.grid import Cell, Column, Rest, grid
from shardq.cli.parsing import Args, add_queue, command, flag, takes
from shardq.cli.shell import Shell
from shardq.cli.watching import watch
from shardq.model.wording import age, short_number

if TYPE_CHECKING:
    from shardq.model.partitions import Partition

ABOUT = """Each partition is a part of the queue in a slot of its own of a cluster. NODE is the master that has it.
STATE is written, or draining: it gets no new messages, is read until it is empty, and removed an hour after the last
write. BACKLOG are messages that wait there, FLIGHT those leased to workers, DEAD the dead letters, OLDEST how long the
oldest message that could be delivered has waited. One that does not answer has no numbers, nor has one that is gone,
because its keys were deleted or lost: shardq resize JOBS --partitions N, with the number that there is, recreates
it."""

EXAMPLES = """  shardq partitions jobs
  shardq partitions jobs --watch
  shardq partitions jobs --json | jq -r .node"""

TABLE: Final = (
    Column("PART"),
    Column("NODE", 9),
    Column("STATE", 8),
    Column("BACKLOG"),
    Column("FLIGHT"),
    Column("DELAYED"),
    Column("DEAD"),
    Column("OLDEST"),
)


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@flag("watch")
def run(args: Args, shell: Shell) -> None:
    """Print a line for each."""
    queue = shell.queue(args.queue)

    def look() -> tuple[list[str], list[dict[str, Any]]]:
        found = queue.partitions()
        return lines(found), [_fields(args.queue, each) for each in found]

    watch(args, shell, look)


def lines(found: Sequence[Partition]) -> list[str]:
    """Return a table with a line on each partition."""
    return grid(TABLE, (_row(each) for each in found))


def _row(part: Partition) -> list[Cell]:
    begins: list[Cell] = [str(part.number), part.node or "-", _state(part)]
    now = part.stats
    if now is None:
        return [*begins, Rest("has lost its keys" if part.is_gone else "does not answer")]
    numbers = [short_number(each) for each in (now.backlog, now.in_flight, now.delayed, now.dead)]
    return [*begins, *numbers, "-" if now.oldest_age is None else age(now.oldest_age)]


def _state(part: Partition) -> str:
    return "gone" if part.is_gone else "written" if part.is_written else "draining"


def _fields(queue: str, part: Partition) -> dict[str, Any]:
    now = part.stats
    return {
        "queue": queue,
        "partition": part.number,
        "node": part.node,
        "state": _state(part),
        "answers": now is not None,
        "backlog": None if now is None else now.backlog,
        "in_flight": None if now is None else now.in_flight,
        "delayed": None if now is None else now.delayed,
        "dead": None if now is None else now.dead,
        "oldest_age": None if now is None else now.oldest_age,
    }
