"""`shardq failures`: what fails; with --letters the dead letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from shardq.cli.exits import NothingThere
from shardq.cli.filters import told, where_of
from shardq.cli.flags import add_filter
from shardq.cli.letters import fields_of
from shardq.cli.letters import lines as lines_of_letters
from shardq.cli.looking import allowed
from shardq.cli.output import remark
from shardq.cli.parsing import Args, add_queue, argument, command, flag, takes
from shardq.cli.screens.failures import details, lines
from shardq.cli.shell import Shell
from shardq.cli.text import bytes_fields, shown_key
from shardq.cli.watching import show, watch
from shardq.outlook.failing import Kind, fails_by_count, fails_of, united

if TYPE_CHECKING:
    from shardq.client import Queue
    from shardq.model import DeadLetter, QueueStats
    from shardq.model.failure import Failure
    from shardq.model.where import Where

ABOUT = """Tries that failed stand in groups: of one task, with one class of error (or how they failed, where there was
none: their lease ended, their process died, ...). The first line says what fails now, by the rule of the queue's
verdict: more than 20 tries in ten minutes, and a tenth of all at least. The last one is the command that sends dead
letters again, fifty a second: run it when the cause is mended.

10 MIN is how many tries failed in the last ten minutes. RETRIED is how many were tried again ever since the group was
first seen (SINCE), DEAD how many dead letters there are of it now, LAST how long ago the last try failed. If one group
is left by a filter, its tenants, its newest message and the traceback of that are shown, too. A queue keeps 200 groups;
with --json those of one error are apart that failed in different ways: tried again, or for the last time.

With --letters it lists dead letters, the oldest first: messages that were delivered max_deliveries times without an
ack, or that their handler rejected. They stay until they are redriven or deleted. Errors are whole, and payloads shown,
with --payloads, and always with --json. Exit code 3 if nothing failed."""

EXAMPLES = """  shardq failures mails
  shardq failures mails --error TimeoutError     # its tenants and traceback
  shardq failures mails --letters --task mail.send_digest
  shardq failures mails --letters -n 1000 --json | jq -r .reason | sort"""

LETTERS_PER_PAGE = 500


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@argument("--letters", action="store_true", help="list the dead letters")
@flag("limit", " rows (20)", default=20)
@flag("payloads", " and whole errors of --letters")
@takes(add_filter)
@flag("watch")
def run(args: Args, shell: Shell) -> None:
    """Print what fails, or dead letters."""
    queue, numbers = shell.existing(args.queue)
    found, where = 0, where_of(args)

    def look() -> tuple[list[str], list[dict[str, Any]]]:
        nonlocal found
        now, every, fails = _looked_at(queue)
        failures = [each for each in every if _is_meant(where, each, now)]
        kinds = united(failures)
        found = len(kinds)
        shown = lines(kinds, fails, now, queue=args.queue, most=args.limit) if kinds else []
        if found == 1 and not where.is_empty:
            shown += details(kinds[0], now)
        return shown, [_fields(args.queue, each) for each in failures]

    if args.letters:
        _list_letters(args, shell, queue, numbers)
        return
    watch(args, shell, look)
    if not found and where.tenant is not None:  # a group names five tenants: of another one nobody knows
        raise NothingThere(
            f"no group of queue {args.queue!r} names tenant {shown_key(where.tenant)}, and each names only five that "
            "failed lately; --letters looks at all dead letters"
        )
    if not found:
        raise NothingThere(f"nothing failed in queue {args.queue!r}{told(where)}")


def _looked_at(queue: Queue) -> tuple[float, Sequence[Failure], frozenset[Kind]]:
    """Return the server's time, the groups, and which of them fail now, as the queue's verdict says it."""
    from shardq.ops.inspect.outlook import everything

    facts = allowed(lambda: queue.client.run(everything(queue.state)))
    if facts is not None:
        return facts.now, facts.failures, fails_of(facts)
    failures = queue.failures()  # this user may not see what is done beside
    return queue.stats().time, failures, fails_by_count(failures)


def _is_meant(where: Where, failure: Failure, now: float) -> bool:
    """Whether the filter means this group, by when its last try failed."""
    age = now - failure.last
    return (
        (where.task is None or where.task == failure.task)
        and (where.error is None or where.error in failure.error_type)
        and (where.reason is None or where.reason in failure.reason)
        and (where.tenant is None or where.tenant in failure.tenants)
        and (where.older_than is None or age >= where.older_than)
        and (where.newer_than is None or age < where.newer_than)
    )


def _fields(name: str, failure: Failure) -> dict[str, Any]:
    tenants: list[Any] = [each if isinstance(each, str) else bytes_fields("", each) for each in failure.tenants]
    return {"queue": name, **asdict(failure), "tenants": tenants}


def _list_letters(args: Args, shell: Shell, queue: Queue, numbers: QueueStats) -> None:
    from shardq.ops.operate.selection import selects_letter

    where, scanned, parents = where_of(args), 0, bool(queue.settings().parents)
    found: list[DeadLetter] = []
    for letter in _letters(queue):
        scanned += 1
        if selects_letter(where, letter, numbers.time, parents):
            found.append(letter)
        if len(found) == args.limit:
            break
    shown = [] if shell.json else lines_of_letters(shell, found, numbers.time, payloads=args.payloads)
    if found:
        show(shell, shown, (fields_of(shell, each) for each in found))
    if scanned < numbers.dead and len(found) == args.limit:
        of = " to look at" if not where.is_empty else ""
        remark(f"{numbers.dead - scanned:,} more{of}; see --limit")
    if not found:
        raise NothingThere(f"queue {args.queue!r} has no dead letters{told(where)}")


def _letters(queue: Queue) -> Iterator[DeadLetter]:
    after = "-"
    while page := queue.dead(LETTERS_PER_PAGE, after=after):
        yield from page
        after = page[-1].entry_id
