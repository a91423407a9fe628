"""`shardq configure`: show or change a queue's settings."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Final, get_args, get_type_hints

from msgspec.structs import asdict

from shardq.cli.exits import UsageError
from shardq.cli.flags import add_change
from shardq.cli.output import remark
from shardq.cli.parsers import meant
from shardq.cli.parsing import Args, add_queue, argument, command, takes
from shardq.cli.shell import Shell, asked_by
from shardq.cli.table import facts
from shardq.cli.values import pair
from shardq.model import QueueConfig

if TYPE_CHECKING:
    from shardq.client import Queue

STREAMS: Final = "streams"
TYPES: Final = {name: (get_args(hint) or (hint,))[0] for name, hint in get_type_hints(QueueConfig).items()}
"""The type of each setting's value: int, float or str. A setting may also be None."""

ABOUT = f"""Without NAME=VALUE it shows the settings. They are stored with the queue and hold for all its clients. Times
are in seconds; `none` unsets a setting. The settings are:
{textwrap.fill(", ".join(TYPES), 76, initial_indent="  ", subsequent_indent="  ")}

Workers and writers may continue while the number of streams changes, no message is lost, and most tenants keep their
streams. If it shrinks, the streams above it get no new messages, but are read until they are empty."""

EXAMPLES = """  shardq configure jobs
  shardq configure jobs visibility_timeout=60 max_deliveries=5 --yes
  shardq configure jobs streams=128 --yes
  shardq configure jobs ttl=none --yes"""


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@argument("changes", metavar="NAME=VALUE", type=pair, nargs="*", help="settings to change")
@takes(add_change)
def run(args: Args, shell: Shell) -> None:
    """Change the settings that were given, then show all."""
    changes = {name: value_of(name, text) for name, text in args.changes}
    queue, now = shell.existing(args.queue)
    config = queue.settings()
    if changes:
        before = asdict(config) | {STREAMS: now.wanted}
        named = ", ".join(f"{name} from {before[name]} to {value}" for name, value in changes.items())
        change = f"Change {named} for queue {args.queue!r}"
        if not shell.goes_on(args, change, {"queue": args.queue, "changes": changes}):
            return
        config = _changed(queue, changes, args)
    shell.show(
        facts([(name, str(value)) for name, value in asdict(config).items() if value is not None]),
        {"queue": args.queue, **asdict(config)},
    )


def _changed(queue: Queue, changes: dict[str, Any], args: Args) -> QueueConfig:
    """Make the changes, and return the settings after that."""
    settings = {name: value for name, value in changes.items() if name != STREAMS}
    if settings:
        queue.configure(**settings, **asked_by(args))
    if STREAMS in changes:
        read, written = queue.resize(changes[STREAMS])
        if read != written:
            remark(f"{read} streams are read until those above {written} are empty")
    return queue.settings()


def value_of(name: str, text: str) -> Any:
    """The value of the setting *name* for the text that was typed; UsageError for an unknown setting or a bad value."""
    kind = TYPES.get(name)
    if kind is None:
        near = meant(name, TYPES)
        hint = f": did you mean {near}?" if near else f"; the settings are {', '.join(TYPES)}"
        raise UsageError(f"there is no setting {name!r}{hint}")
    if text == "none" and name != STREAMS:
        return None
    try:
        return kind(text)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
    raise UsageError(f"{name} must be {wanted}, not {text!r}")
