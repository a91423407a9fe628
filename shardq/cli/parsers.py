"""Parsers of words: they show no secret, name the command that was meant, and import a command when it is asked for."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable
from itertools import groupby
from typing import Any, NoReturn

from shardq.arguments import shown
from shardq.cli.exits import USAGE


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


class Discreet(argparse.ArgumentParser):
    """A parser that shows no password of a URL that it does not understand, and nothing that a terminal would obey."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=Help, allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end."""
        from shardq.cli.text import printable  # which takes longer to import than all that a help needs

        super().error(printable(_without_password(message)))

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        # Before 3.13, argparse makes an empty list of `--option=--`.
        if action.option_strings and arg_strings == ["--"]:
            raise argparse.ArgumentError(action, "-- is no value")
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        # Of a command that is mistyped, argparse would list all that there are.
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            import difflib

            near = difflib.get_close_matches(value, action.choices, n=1)
            hint = f"did you mean {near[0]}?" if near else f"{self.prog} --help lists them"
            self.exit(USAGE, f"{self.prog}: there is no command {shown(_without_password(value))}: {hint}\n")
        super()._check_value(action, value)


class LaterParser(Discreet):
    """The parser of a command, which *complete* gives what the command takes when there is something to parse."""

    def __init__(self, *, complete: Callable[[argparse.ArgumentParser], None], **settings: Any) -> None:
        super().__init__(**settings)
        self._complete: Callable[[argparse.ArgumentParser], None] | None = complete

    def complete(self) -> None:
        """Load the command, if it is not loaded yet."""
        complete, self._complete = self._complete, None
        if complete is not None:
            complete(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse *args* as a parser does whose command was there from the beginning."""
        self.complete()
        return super().parse_known_args(args, namespace)


def _without_password(text: str) -> str:
    return re.sub(r"://[^/\s@]*@", "://…@", text)
