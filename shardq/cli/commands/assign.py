"""`shardq assign`: give named shard keys shards that overlap little, list these, or deal them by hashing again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from shardq.cli.exits import NothingThere, UsageError
from shardq.cli.flags import add_sure
from shardq.cli.names import add_names, names_of
from shardq.cli.output import remark, say
from shardq.cli.parsing import Args, add_queue, argument, command, flag, takes
from shardq.cli.shell import Shell
from shardq.cli.table import draw
from shardq.cli.text import bytes_fields, json_line, plural, shown_key
from shardq.protocol.bodies import text_or_bytes

if TYPE_CHECKING:
    from shardq.client import Queue

ABOUT = """Any two of the named shard keys share at most --max-overlap streams. Shard keys that are not named are dealt
their streams by hashing, as before. Shard keys that were assigned earlier keep their streams. If there is no room for
all names, nothing is assigned.

--list shows which shard keys are assigned. --remove deals shard keys by hashing again: new messages of theirs go to the
streams of that, and what waits stays in its streams and is read there. Afterwards the queue may have fewer streams than
the assignments named."""

EXAMPLES = """  shardq assign jobs acct-1 acct-2 --yes
  shardq assign jobs --names tenants.txt --max-overlap 2 --yes
  shardq assign jobs --list
  shardq assign jobs acct-1 --remove --yes
  shardq assign jobs --all --remove --yes"""


@command(ABOUT, EXAMPLES)
@takes(add_queue, add_names)
@flag("max_overlap", " (the stored value, or 1)")
@argument("--list", action="store_true", help="list the assigned shard keys")
@argument("--remove", action="store_true", help="deal these shard keys by hashing again")
@flag("all", ", with --remove")
@takes(add_sure)
def run(args: Args, shell: Shell) -> None:
    """Ask for confirmation, then assign."""
    if args.list and args.remove:
        raise UsageError("--list and --remove cannot be both")
    _DONE["list" if args.list else "remove" if args.remove else "assign"](args, shell)


def _assign(args: Args, shell: Shell) -> None:
    names = names_of(args)
    if args.all or (not names and args.max_overlap is None):
        raise UsageError("give shard keys, or --max-overlap; --all goes with --remove")
    queue, _ = shell.existing(args.queue)
    change = f"Change the streams of {plural(len(names), 'shard key')} in queue {args.queue!r}"
    if shell.goes_on(args, change, {"queue": args.queue, "names": len(names)}):
        made = queue.assign(names, max_overlap=args.max_overlap)
        text = f"{plural(len(made), 'shard key')} assigned, any two share at most {plural(made.max_overlap, 'stream')}"
        shell.show(text, {"queue": args.queue, "assigned": len(made), "max_overlap": made.max_overlap})


def _remove(args: Args, shell: Shell) -> None:
    names = names_of(args)
    if bool(names) == args.all:
        raise UsageError("give either shard keys or --all")
    queue, _ = shell.existing(args.queue)
    whose = "all assigned shard keys" if args.all else plural(len(names), "shard key")
    change = f"Deal {whose} of queue {args.queue!r} by hashing again"
    if shell.goes_on(args, change, {"queue": args.queue, "names": None if args.all else len(names)}):
        left = queue.unassign(None if args.all else names)
        shell.show(f"{plural(len(left), 'shard key')} still assigned", {"queue": args.queue, "assigned": len(left)})


def _list(args: Args, shell: Shell) -> None:
    if args.all or args.max_overlap is not None or names_of(args):
        raise UsageError("--list shows all assigned shard keys")
    _show(shell.existing(args.queue)[0], shell)


def _show(queue: Queue, shell: Shell) -> None:
    made = queue.assignment()
    found = [(text_or_bytes(key), dealt) for key, dealt in made.items()]
    if not found:
        raise NothingThere(f"queue {queue.name!r} has no assigned shard keys")
    if shell.json:
        for name, dealt in found:
            say(json_line({**bytes_fields("shard_key", name), "shard": dealt}))
        return
    rows = [(shown_key(name), ",".join(map(str, dealt))) for name, dealt in found]
    draw(("shard key", "streams"), rows, folded={"shard key", "streams"})
    remark(
        f"{plural(len(found), 'shard key')} of at most {made.capacity:,}; any two share at most "
        f"{plural(made.max_overlap, 'stream')}"
    )


_DONE: Final[Mapping[str, Callable[[Args, Shell], None]]] = {"assign": _assign, "remove": _remove, "list": _list}
