"""`shardq configure`: show or change a queue's settings."""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import asdict
from typing import Any, get_args, get_type_hints

from shardq.cli.exits import FAILED, OK, UsageError
from shardq.cli.parsing import Commands, add_queue, add_yes, command, header
from shardq.cli.shell import Shell
from shardq.cli.table import facts
from shardq.cli.text import printable
from shardq.model import QueueConfig

TYPES = {
    name: (get_args(hint) or (hint,))[0] for name, hint in get_type_hints(QueueConfig).items() if name != "streams"
}
"""What each setting is, unless it is unset: int, float or str."""

ABOUT = f"""Without changes it shows the settings. They are the queue's: all its clients follow. Times are
seconds, `none` unsets. The number of streams is changed with `shardq resize`. Known are:
{textwrap.fill(", ".join(TYPES), 76, initial_indent="  ", subsequent_indent="  ")}"""

EXAMPLES = """  shardq configure jobs
  shardq configure jobs visibility_timeout=60 max_deliveries=5 --yes
  shardq configure jobs ttl=none --yes"""


def register(commands: Commands) -> None:
    """Add the parser."""
    parser = command(commands, "configure", run, "show or change a queue's settings", about=ABOUT, examples=EXAMPLES)
    add_queue(parser)
    parser.add_argument("changes", metavar="NAME=VALUE", type=header, nargs="*", help="settings to change")
    add_yes(parser)


def run(args: argparse.Namespace, shell: Shell) -> int:
    """Show the settings, after changing some."""
    changes = {name: value_of(name, text) for name, text in args.changes}
    queue, _ = shell.existing(args.queue)
    config = queue.settings()
    if changes:
        named = ", ".join(f"{name} from {getattr(config, name)} to {value}" for name, value in changes.items())
        if not shell.confirm(f"Change {named} for queue {args.queue!r}?", yes=args.yes):
            return FAILED
        config = queue.configure(**changes)
    shell.tell(
        facts([(name, printable(str(value))) for name, value in asdict(config).items() if value is not None]),
        {"queue": args.queue, **asdict(config)},
    )
    return OK


def value_of(name: str, text: str) -> Any:
    """The value of a setting as it was typed; UsageError for an unknown setting or what is not a value of it."""
    kind = TYPES.get(name)
    if kind is None:
        other = "; shardq resize changes it" if name == "streams" else f"; known are {', '.join(TYPES)}"
        raise UsageError(f"{name!r} is not a setting to configure{other}")
    if text == "none":
        return None
    try:
        return kind(text)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
    raise UsageError(f"{name} must be {wanted}, not {text!r}")
