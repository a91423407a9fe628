"""`shardq configure`: show or change a queue's settings."""

from __future__ import annotations

import textwrap
from typing import Any, get_args, get_type_hints

from msgspec.structs import asdict

from shardq.cli.exits import UsageError
from shardq.cli.parsing import Args, add_queue, add_yes, argument, command, pair, takes
from shardq.cli.shell import Shell
from shardq.cli.table import facts
from shardq.model import QueueConfig

TYPES = {
    name: (get_args(hint) or (hint,))[0] for name, hint in get_type_hints(QueueConfig).items() if name != "streams"
}
"""The type of each setting's value: int, float or str. A setting may also be None."""

ABOUT = f"""Without NAME=VALUE it shows the settings. They are stored with the queue and hold for all its clients. Times
are in seconds; `none` unsets a setting. Use `shardq resize` for the number of streams. The settings are:
{textwrap.fill(", ".join(TYPES), 76, initial_indent="  ", subsequent_indent="  ")}"""

EXAMPLES = """  shardq configure jobs
  shardq configure jobs visibility_timeout=60 max_deliveries=5 --yes
  shardq configure jobs ttl=none --yes"""


@command(ABOUT, EXAMPLES)
@takes(add_queue)
@argument("changes", metavar="NAME=VALUE", type=pair, nargs="*", help="settings to change")
@takes(add_yes)
def run(args: Args, shell: Shell) -> None:
    """Change the settings that were given, then show all."""
    changes = {name: value_of(name, text) for name, text in args.changes}
    queue, _ = shell.existing(args.queue)
    config = queue.settings()
    if changes:
        named = ", ".join(f"{name} from {getattr(config, name)} to {value}" for name, value in changes.items())
        shell.confirm(f"Change {named} for queue {args.queue!r}?", yes=args.yes)
        config = queue.configure(**changes)
    shell.show(
        facts([(name, str(value)) for name, value in asdict(config).items() if value is not None]),
        {"queue": args.queue, **asdict(config)},
    )


def value_of(name: str, text: str) -> Any:
    """The value of the setting *name* for the text that was typed; UsageError for an unknown setting or a bad value."""
    kind = TYPES.get(name)
    if kind is None:
        if name == "streams":
            raise UsageError("'streams' is not a setting to configure; shardq resize changes it")
        raise UsageError(f"there is no setting {name!r}; the settings are {', '.join(TYPES)}")
    if text == "none":
        return None
    try:
        return kind(text)
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
    raise UsageError(f"{name} must be {wanted}, not {text!r}")
