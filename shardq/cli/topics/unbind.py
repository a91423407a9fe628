"""`shardq topics unbind`: remove bindings."""

from __future__ import annotations

from shardq.cli.exits import NothingThere, UsageError
from shardq.cli.flags import add_sure
from shardq.cli.parsing import Args, Parser, argument, command, flag, takes
from shardq.cli.shell import Shell

ABOUT = """A binding is removed only if its pattern is the same text as PATTERN; other bindings of the queue stay. Exit
code 3 when a pattern was not bound: stderr names it, and the other patterns are unbound nevertheless.
It does not ask.

--gone removes all bindings of the router to queues that do not exist: they were deleted, or have not been declared yet
(shardq topics list --gone lists them). Exit code 3 when there are none."""

EXAMPLES = """  shardq topics unbind 'orders.*.created' billing
  shardq topics unbind 'orders.#' 'invoices.#' audit
  shardq topics unbind --gone"""


def _set_usage(parser: Parser) -> None:
    parser.usage = "shardq topics unbind [OPTIONS] (PATTERN [PATTERN ...] QUEUE | --gone)"


@command(ABOUT, EXAMPLES)
@takes(_set_usage)
@argument("names", metavar="PATTERN ... QUEUE", nargs="*", help="the patterns as they were bound; the queue")
@flag("gone")
@flag("router")
@takes(add_sure)
def run(args: Args, shell: Shell) -> None:
    """Unbind the patterns."""
    args.yes = True  # the same command binds them again
    if args.gone:
        if args.names:
            raise UsageError("--gone takes no patterns and no queue")
        if shell.goes_on(args, "Unbind what is bound to queues that are gone", {"router": args.router}):
            _unbind_gone(args.router, shell)
    elif len(args.names) < 2:
        raise UsageError("name one or more patterns, and then the queue; or --gone")
    elif shell.goes_on(args, f"Unbind {' '.join(args.names[:-1])} from {args.names[-1]}", {"names": args.names}):
        _unbind(args.names, args.router, shell)


def _unbind(names: list[str], router: str, shell: Shell) -> None:
    *named, queue = names
    patterns = list(dict.fromkeys(named))
    unknown = {each.pattern for each in shell.client.unbind_many([(p, queue) for p in patterns], router=router)}
    for pattern in patterns:
        if pattern not in unknown:
            value = {"pattern": pattern, "queue": queue, "router": router, "changed": True}
            shell.show("unbound" if len(patterns) == 1 else f"unbound {pattern}", value)
    if unknown:
        listed = ", ".join(repr(pattern) for pattern in patterns if pattern in unknown)
        raise NothingThere(f"router {router!r} has no binding of {listed} to {queue!r}")


def _unbind_gone(router: str, shell: Shell) -> None:
    removed = shell.client.unbind_gone(router=router)
    for pattern, queue in removed:
        value = {"pattern": pattern, "queue": queue, "router": router, "changed": True}
        shell.show(f"unbound {pattern} from {queue}", value)
    if not removed:
        raise NothingThere(f"router {router!r} has no binding to a queue that is gone")
