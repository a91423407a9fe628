"""`shardq actions`: operators' actions on a queue that are under way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

from shardq.cli.acting import ActionWords, follow
from shardq.cli.exits import OK, NothingThere, UsageError
from shardq.cli.flags import add_change
from shardq.cli.parsing import Args, add_queue, argument, command, flag, takes
from shardq.cli.screens.actions import lines
from shardq.cli.shell import Shell, asked_by
from shardq.cli.text import bytes_fields
from shardq.cli.watching import watch
from shardq.outlook.underway import WORDS_OF_ACTIONS

if TYPE_CHECKING:
    from shardq.client import Queue
    from shardq.model.action import ActionStatus

SUBCOMMANDS: Final = ("list", "stop", "take-over")

ABOUT = """Lists the actions by a filter (redrive, delete, cancel, retry, purge) that are under way, and those of the
last day. Such an action runs in the process that asked for it; all others see how far it is.

`stop` ends one after its piece of a hundred messages: messages that are done stay done. `take-over` continues one
here whose process was silent for 30 seconds (its state is abandoned), and does each message once.

DONE is how many messages it acted on, LEFT about how many are to come, OF its filter. Exit code 3 if there is none."""

EXAMPLES = """  shardq actions jobs --watch
  shardq actions jobs stop ID --yes
  shardq actions jobs take-over ID --yes"""


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@argument("action", metavar="ACTION", nargs="?", choices=SUBCOMMANDS, default="list", help=", ".join(SUBCOMMANDS))
@argument("id", metavar="ID", nargs="?", help="which one")
@flag("watch")
@takes(add_change)
def run(args: Args, shell: Shell) -> int:
    """Do what was asked."""
    queue = shell.existing(args.queue)[0]
    if args.action == "list":
        _list(args, shell, queue)
        return OK
    if not args.id:
        raise UsageError(f"name the action to {args.action}: shardq actions {args.queue} lists them")
    one = next((each for each in queue.actions() if each.id == args.id), None)
    if one is None:
        raise NothingThere(f"queue {args.queue!r} has no action {args.id!r}")
    verb = "Stop" if args.action == "stop" else "Take over"
    if not shell.goes_on(
        args, f"{verb} the {WORDS_OF_ACTIONS[one.kind]} {one.id} of {one.by}", {"queue": args.queue, "id": one.id}
    ):
        return OK
    if args.action == "take-over":
        return follow(
            shell,
            args.queue,
            ActionWords(one.kind, WORDS_OF_ACTIONS[one.kind], "done, by both"),
            queue.take_over(one.id),
            one.left,
        )
    queue.stop_action(one.id, **asked_by(args))
    shell.show(f"{one.id} is asked to stop", {"queue": args.queue, "id": one.id, "stopped": True})
    return OK


def _list(args: Args, shell: Shell, queue: Queue) -> None:
    found: Sequence[ActionStatus] = ()

    def look() -> tuple[list[str], list[dict[str, Any]]]:
        nonlocal found
        found = queue.actions()
        return lines(found, queue.stats().time, queue=args.queue) if found else [], [_fields(each) for each in found]

    watch(args, shell, look)
    if not found:
        raise NothingThere(f"nothing is under way on queue {args.queue!r}, and nothing was in the last day")


def _fields(action: ActionStatus) -> dict[str, Any]:
    where = {name: value for name, value in asdict(action.where).items() if value is not None}
    if isinstance(where.get("tenant"), bytes):
        where |= bytes_fields("tenant", where.pop("tenant"))
    return asdict(action) | {"where": where}
