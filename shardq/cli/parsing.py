"""What the parsers of all commands share."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import methodcaller
from typing import Any, TypeAlias

from shardq.cli.exits import MEANING
from shardq.cli.shell import Shell

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Parser: TypeAlias = argparse.ArgumentParser
Args: TypeAlias = argparse.Namespace
Run: TypeAlias = Callable[[Args, Shell], int | None]
Adds: TypeAlias = Callable[[Parser], object]
DEFAULT_URL = "redis://localhost:6379"
DEFAULT_TIMEOUT = 5.0


class Help(argparse.HelpFormatter):
    """Fills paragraphs to the width of the terminal, and leaves indented lines as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks: list[str] = []
        for paragraph in text.split("\n\n"):
            for raw, group in groupby(paragraph.splitlines(), key=lambda line: line.startswith(" ")):
                lines = list(group)
                blocks.append("\n".join(lines) if raw else textwrap.fill(" ".join(lines), width))
            blocks.append("")
        return "\n".join(blocks[:-1])


@dataclass(frozen=True)
class Command:
    """A command as its parser is made; *adds* are what it takes, in the order of its help."""

    name: str
    summary: str
    about: str
    examples: str
    adds: tuple[Adds, ...]

    def add_to(self, commands: Commands) -> None:
        """Add the parser of this command to those of others."""
        parser = commands.add_parser(
            self.name,
            help=self.summary,
            description=f"{self.summary[0].upper()}{self.summary[1:]}.\n\n{self.about}".strip(),
            epilog=f"examples:\n{self.examples}\n\n{MEANING}" if self.examples else MEANING,
            formatter_class=Help,
            allow_abbrev=False,
        )
        for add in self.adds:
            add(parser)


def command(name: str, summary: str, about: str = "", examples: str = "") -> Callable[[Run], Command]:
    """Make a function a command with the common options; `argument` and `takes` below say what else it takes.

    The function gets the arguments and a shell. It returns the exit code, or None if it did what it is for.
    """

    def decorated(run: Run) -> Command:
        common = partial(add_common, default=argparse.SUPPRESS)
        return Command(name, summary, about, examples, (methodcaller("set_defaults", run=run), common, *_taken(run)))

    return decorated


def group(name: str, summary: str, about: str, examples: str, title: str, members: Iterable[Command]) -> Command:
    """A command that only has commands of its own."""

    def add_members(parser: Parser) -> None:
        names: Commands = parser.add_subparsers(title=title, metavar="NAME", required=True)
        for each in members:
            each.add_to(names)

    return Command(name, summary, about, examples, (add_members,))


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
