"""The common parts of the parsers of all commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from shardq.cli.exits import MEANING
from shardq.cli.flags import add_flag
from shardq.extras import install

if TYPE_CHECKING:
    from shardq.cli.menu import Menu
    from shardq.cli.shell import Shell

Parser: TypeAlias = argparse.ArgumentParser
Args: TypeAlias = argparse.Namespace
Run: TypeAlias = "Callable[[Args, Shell], int | None]"
Adds: TypeAlias = Callable[[Parser], object]


class Command(NamedTuple):
    """The purpose of a command, the extra that it needs, and its arguments, in the order of its help."""

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


def flag(name: str, more: str = "", **how: Any) -> Callable[[Run], Run]:
    """Let a command take a flag of the table; *more* is said behind its meaning."""
    return takes(partial(_add_flag, name, more, how))


def _add_flag(name: str, more: str, how: dict[str, Any], parser: Parser) -> None:
    add_flag(parser, name, more, **how)


def add_common(parser: Parser, *, default: Any = None) -> None:
    """Add the options that may stand before or after the command's name."""
    common = parser.add_argument_group("options of every command")
    for name in ("url", "timeout", "json"):
        add_flag(common, name, default=default)


def add_queue(parser: Parser) -> None:
    """Add the argument for the queue's name."""
    parser.add_argument("queue", metavar="QUEUE", help="the queue's name")
