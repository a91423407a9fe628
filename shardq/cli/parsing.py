"""What the parsers of all commands share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from shardq.cli.exits import MEANING
from shardq.extras import install

if TYPE_CHECKING:
    from shardq.cli.menu import Menu
    from shardq.cli.shell import Shell

Parser: TypeAlias = argparse.ArgumentParser
Args: TypeAlias = argparse.Namespace
Run: TypeAlias = "Callable[[Args, Shell], int | None]"
Adds: TypeAlias = Callable[[Parser], object]
DEFAULT_URL = "redis://localhost:6379"
DEFAULT_TIMEOUT = 5.0


class Command(NamedTuple):
    """What a command is for, the extra that it needs, and what it takes, in the order of its help."""

    about: str
    examples: str
    extra: str
    adds: tuple[Adds, ...]

    def add_to(self, parser: Parser, summary: str) -> None:
        """Give the parser of this command what it takes and what its help says."""
        needs = f"Needs the extra {self.extra}: {install(self.extra)}" if self.extra else ""
        paragraphs = (f"{summary[0].upper()}{summary[1:]}.", self.about.strip(), needs)
        parser.description = "\n\n".join(filter(None, paragraphs))
        parser.epilog = f"examples:\n{self.examples}\n\n{MEANING}" if self.examples else MEANING
        for add in self.adds:
            add(parser)


def command(about: str = "", examples: str = "", *, extra: str = "") -> Callable[[Run], Command]:
    """Make a function a command with the common options; `argument` and `takes` below say what else it takes.

    The function gets the arguments and a shell. It returns the exit code, or None if it did what it is for.
    """

    def decorated(run: Run) -> Command:
        common = partial(add_common, default=argparse.SUPPRESS)
        return Command(about, examples, extra, (methodcaller("set_defaults", run=run), common, *_taken(run)))

    return decorated


def group(menu: Menu, about: str, examples: str, *, title: str = "commands", extra: str = "") -> Command:
    """A command that only has commands of its own."""
    return Command(about, examples, extra, (partial(menu.add_to, title=title, metavar="NAME"),))


def takes(*adds: Adds) -> Callable[[Run], Run]:
    """Let a command take what each of *adds* adds to its parser. The decorators stand in the order of the help."""

    def decorated(run: Run) -> Run:
        vars(run)["takes"] = (*adds, *_taken(run))
        return run

    return decorated


def argument(*names: str, **how: Any) -> Callable[[Run], Run]:
    """Let a command take one argument, described as for `ArgumentParser.add_argument`."""
    return takes(methodcaller("add_argument", *names, **how))


def _taken(run: Run) -> tuple[Adds, ...]:
    taken: tuple[Adds, ...] = vars(run).get("takes", ())
    return taken


def add_common(parser: Parser, *, default: Any = None) -> None:
    """Add the options that may stand before or after the command's name."""
    common = parser.add_argument_group("options of every command")
    common.add_argument(
        "--url",
        metavar="URL",
        default=default,
        help=f"the server's URL ($SHARDQ_URL, or {DEFAULT_URL})",
    )
    common.add_argument(
        "--timeout",
        type=time,
        metavar="S",
        default=default,
        help=f"seconds to keep trying while Redis does not answer ({DEFAULT_TIMEOUT:g})",
    )
    common.add_argument("--json", action="store_true", default=default, help="print JSON, one object per line")


def add_queue(parser: Parser) -> None:
    """Add the argument for the queue's name."""
    parser.add_argument("queue", metavar="QUEUE", help="the queue's name")


def add_router(parser: Parser) -> None:
    """Add the option for the router's name."""
    parser.add_argument(
        "--router", metavar="NAME", default="default", help="the router, a named set of bindings (default)"
    )


def add_yes(parser: Parser) -> None:
    """Add --yes, for commands that ask before they change much."""
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask; needed where there is no terminal")


def number(low: int) -> Callable[[str], int]:
    """A whole number of at least *low*."""

    def whole_number(text: str) -> int:
        if not re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII) or int(text) < low:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {low}, not {text!r}")
        return int(text)

    return whole_number


def time(text: str) -> float:
    """A number of seconds; the library checks its bounds."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number of seconds, not {text!r}") from None


def period(text: str) -> float:
    """How often to look, in seconds: 0.05 to a day."""
    value = time(text)
    if not 0.05 <= value <= 86_400:
        raise argparse.ArgumentTypeError(f"must be a number of seconds from 0.05 to 86,400, not {text!r}")
    return value


def pair(text: str) -> tuple[str, str]:
    """`NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, not {text!r}")
    return name, value
