"""Names of commands with a summary of each: a help lists them, and none of them is imported for it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from shardq.cli.parsers import LaterParser

if TYPE_CHECKING:
    from shardq.cli.parsing import Command, Parser


class Menu(NamedTuple):
    """Commands to choose from. Each is the `run` of a module of *package*; `summaries` has a line on each, by name.

    Nothing else says a command's name and its summary.
    """

    package: str
    summaries: Mapping[str, str]

    def load(self, name: str) -> Command:
        """Return the command called *name*. Only now is its module imported."""
        command: Command = import_module(f"{self.package}.{name.replace('-', '_')}").run
        return command

    def add_to(self, parser: Parser, *, title: str = "commands", metavar: str = "COMMAND") -> None:
        """Let a parser take one of these commands."""
        names = parser.add_subparsers(title=title, metavar=metavar, required=True, parser_class=LaterParser)
        for name, summary in self.summaries.items():
            names.add_parser(name, help=summary, complete=partial(self._complete, name))

    def _complete(self, name: str, parser: Parser) -> None:
        self.load(name).add_to(parser, self.summaries[name])
