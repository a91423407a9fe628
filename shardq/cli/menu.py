"""Names of commands with a summary of each: a help lists them, and none of them is imported for it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from shardq.cli.parsers import Discreet, LaterParser

if TYPE_CHECKING:
    from shardq.cli.parsing import Command, Parser


class Menu(NamedTuple):
    """Commands to choose from, in groups. Each is the `run` of a module of *package*; `groups` has a line on each.

    A group whose name is '' is listed without a heading. Nothing else says a command's name and its summary.
    `elsewhere` are names of no command that people try, with what does that: it is proposed.
    """

    package: str
    groups: Mapping[str, Mapping[str, str]]
    elsewhere: Mapping[str, str] = {}

    @property
    def summaries(self) -> dict[str, str]:
        """The line on each command, by its name."""
        return {name: summary for each in self.groups.values() for name, summary in each.items()}

    def load(self, name: str) -> Command:
        """Return the command called *name*. Only now is its module imported."""
        command: Command = import_module(f"{self.package}.{name.replace('-', '_')}").run
        return command

    def add_to(self, parser: Parser, *, title: str = "commands", metavar: str = "COMMAND") -> None:
        """Let a parser take one of these commands."""
        parser.usage = f"{parser.prog} [OPTIONS] {metavar} ..."
        names = parser.add_subparsers(
            title=title, description=self.listing(), metavar=metavar, help=argparse.SUPPRESS, required=True,
            prog=parser.prog, parser_class=LaterParser,
        )  # fmt: skip
        if isinstance(parser, Discreet):
            parser.within = {name: _names_in(summary) for name, summary in self.summaries.items()}
            parser.elsewhere = self.elsewhere
        for name, summary in self.summaries.items():
            made = names.add_parser(name, complete=partial(self._complete, name, summary))
            made.outside = {each: f"{parser.prog} {each}" for each in self.summaries}

    def listing(self) -> str:
        """The commands with their summaries, below the names of their groups."""
        width = max(map(len, self.summaries))
        lines: list[str] = []
        for group, commands in self.groups.items():
            lines += [f"  {group}:"] if group else []
            lines += [f"    {name:<{width}}  {summary}" for name, summary in commands.items()]
        return "\n".join(lines)

    def _complete(self, name: str, summary: str, parser: Parser) -> None:
        self.load(name).add_to(parser, summary)


def _names_in(summary: str) -> tuple[str, ...]:
    """The names of the commands of a group, which stand first in its line, as in "list, bind: topics and queues"."""
    names, colon, _ = summary.partition(": ")
    return tuple(names.split(", ")) if colon else ()
