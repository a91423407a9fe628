"""`shardq schedule`: list, add, change and remove the schedules that a queue stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from shardq.cli.exits import NothingThere, UsageError
from shardq.cli.filters import tenant_of
from shardq.cli.flags import add_sure
from shardq.cli.output import say
from shardq.cli.parsing import Args, add_queue, argument, command, flag, takes
from shardq.cli.shell import Shell, asked_by
from shardq.cli.table import draw
from shardq.cli.text import bytes_fields, date_and_time, duration, json_line, plural, shown_key
from shardq.model.schedule import CATCH_UPS, Schedule

if TYPE_CHECKING:
    from shardq.client import Queue

ACTIONS: Final = ("list", "add", "pause", "resume", "run", "remove")

ABOUT = """A stored schedule writes a call of a task at the times of a cron line, or every N seconds; workers of
the queue's tasks do that. The queue stores as many as its setting `max_schedules` says, which is none by default. `add`
also changes the one of that name. `run` writes its call now, besides; the journal has who asked for it, and why. Calls
that are written already, up to 75 s ahead, still come after `pause` and `remove`. The schedules that a program declares
by @tasks.cron are not among these."""

EXAMPLES = """  shardq configure reports max_schedules=1000 --yes
  shardq schedule reports add daily --task app.report -t acct --cron '0 3 * * *'
  shardq schedule reports
  shardq schedule reports pause daily
  shardq schedule reports run daily --note 'ticket 812'
  shardq schedule reports remove daily --yes"""


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@argument("action", metavar="ACTION", nargs="?", choices=ACTIONS, default="list", help=", ".join(ACTIONS))
@argument("name", metavar="NAME", nargs="?", help="the schedule's name")
@flag("task", " that add is to call")
@argument("--arguments", metavar="JSON", default="{}", help="add: its arguments, as a JSON object")
@flag("tenant", ", for add")
@argument("--cron", metavar="LINE", help="add: minute, hour, day of the month, month and day of the week")
@argument("--tz", metavar="ZONE", default="UTC", help="add: the time zone of the cron line (UTC)")
@flag("every", "; of add, instead of --cron")
@argument(
    "--catch-up", choices=CATCH_UPS, default="skip", help="add: the slots to write later if no worker was there (skip)"
)
@takes(add_sure)
@flag("by", "; of run")
@flag("note", "; of run")
def run(args: Args, shell: Shell) -> None:
    """Do what was asked."""
    if args.action != "run" and (args.by or args.note):
        raise UsageError(f"--by and --note go with run: the journal has nothing of {args.action}")
    if args.action == "list":
        if args.name:
            raise UsageError("list shows all schedules: it takes no name")
        queue, now = shell.existing(args.queue)
        show(args.queue, queue.schedules.list(), now.time, shell)
        return
    if not args.name:
        raise UsageError(f"name the schedule to {args.action}")
    if args.action == "add" and not (args.task and args.tenant is not None):
        raise UsageError("name the task and its tenant: --task TASK --tenant KEY")
    if args.every is not None and args.every % 1:
        raise UsageError("--every is of whole seconds")
    queue, _ = shell.existing(args.queue)
    if args.dry_run:
        shell.show(f"would {args.action} schedule {args.name}", {"dry_run": True, "name": args.name})
        return
    _DONE[args.action](args, queue, shell)


def _add(args: Args, queue: Queue, shell: Shell) -> None:
    call = [args.task, _arguments(args.arguments)]
    every = None if args.every is None else int(args.every)
    found = queue.schedules.add(
        args.name, call, shard_key=tenant_of(args) or "", cron=args.cron, tz=args.tz, every=every,
        catch_up=args.catch_up,
    )  # fmt: skip
    shell.show(f"schedule {args.name} comes next at {_time(found.next)}", fields(found))


def _arguments(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        problem = f"--arguments must be a JSON object such as '{{\"days\": 1}}': {error}"
    raise UsageError(problem)


def _pause(args: Args, queue: Queue, shell: Shell) -> None:
    queue.schedules.pause(args.name)
    shell.show(f"schedule {args.name} is paused until it is resumed", {"name": args.name, "paused": True})


def _resume(args: Args, queue: Queue, shell: Shell) -> None:
    queue.schedules.resume(args.name)
    shell.show(f"schedule {args.name} goes on", {"name": args.name, "paused": False})


def _run(args: Args, queue: Queue, shell: Shell) -> None:
    message_id = queue.schedules.run(args.name, **asked_by(args))
    shell.show(message_id, {"name": args.name, "message_id": message_id})


def _remove(args: Args, queue: Queue, shell: Shell) -> None:
    shell.confirm(f"Remove schedule {args.name} of queue {args.queue!r}?", yes=args.yes)
    found = queue.schedules.remove(args.name)
    text = f"schedule {args.name} is removed" if found else f"there was no schedule {args.name}"
    shell.show(text, {"name": args.name, "removed": found})


_DONE: Final[Mapping[str, Callable[[Args, Queue, Shell], None]]] = {
    "add": _add,
    "pause": _pause,
    "resume": _resume,
    "run": _run,
    "remove": _remove,
}


def fields(each: Schedule) -> dict[str, Any]:
    """Return a schedule as an object of JSON."""
    return {
        "name": each.name,
        "task": each.task,
        **bytes_fields("shard_key", each.shard_key),
        "cron": each.cron,
        "tz": each.tz,
        "every": each.every,
        "catch_up": each.catch_up,
        "paused": each.paused,
        "last": each.last,
        "next": each.next,
        "runs": [{"slot": run.slot, "message_id": run.message_id} for run in each.runs],
    }


def show(name: str, found: list[Schedule], now: float, shell: Shell) -> None:
    """Print all schedules. Nothing if there is none."""
    if not found:
        raise NothingThere(f"queue {name!r} stores no schedules")
    if shell.json:
        for each in found:
            say(json_line(fields(each)))
        return
    rows = [
        (each.name, each.task, shown_key(each.shard_key), each.when, each.catch_up, _next(each, now)) for each in found
    ]
    headers = ("schedule", "task", "tenant", "when", "catch up", "next")
    draw(headers, rows, folded={"schedule": 8, "task": 8, "tenant": 8, "when": 9})
    say(plural(len(found), "schedule"))


def _next(each: Schedule, now: float) -> str:
    if each.paused or each.next is None:
        return "paused" if each.paused else "never"
    return f"in {duration(max(0.0, each.next - now))}"


def _time(at: float | None) -> str:
    return "never" if at is None else date_and_time(at)
