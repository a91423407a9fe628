"""Parsers of words: they show no secret, name the command that was meant, and import a command when it is asked for."""

from __future__ import annotations

import argparse
import difflib
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, takewhile
from typing import Any, Final, NoReturn

from shardq.arguments import shown
from shardq.cli.exits import USAGE

WIDTH: Final = 80
"""Columns of all that people read."""
MIN_LIKENESS: Final = 0.7
"""How alike a mistyped word and a name are for the name to be proposed."""
_NUMBER: Final = re.compile(r"-?\.?\d")
_FLAG: Final = re.compile(r"--[^\s=]+(=|$)")


def meant(word: str, names: Iterable[str]) -> str | None:
    """Return the name that was meant by a mistyped *word*; None if none is like it.

    >>> meant("windw", ["streams", "window"]), meant("next", ["export"])
    ('window', None)
    """
    return next(iter(difflib.get_close_matches(word, [*names], n=1, cutoff=MIN_LIKENESS)), None)


class HelpFormatter(argparse.HelpFormatter):
    """Fills paragraphs to 80 columns or the width of the terminal, and leaves indented lines as they are."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=min(WIDTH, shutil.get_terminal_size().columns) - 2)

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

    within: Mapping[str, Sequence[str]] = {}
    """By the command that is a group, the names of those in it."""
    elsewhere: Mapping[str, str] = {}
    """By a usual name of no command, what does that."""
    outside: Mapping[str, str] = {}
    """By the name of a command beside this one, which is a group, how it is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(formatter_class=HelpFormatter, allow_abbrev=False, **settings)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse *args*, which must all be known."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.complain(unknown)
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Say how the command is used, and what is wrong; and end."""
        from shardq.cli.output import folded  # which takes longer to import than all that a help needs
        from shardq.cli.text import printable

        said = folded(f"{self.prog}: {printable(_without_password(message))}", sys.stderr)
        self.exit(USAGE, f"{self.format_usage()}{said}\n")

    def complain(self, unknown: Sequence[str]) -> NoReturn:
        """Say that there is no such flag or argument, and which flag was meant."""
        word = unknown[0].partition("=")[0]
        if not word.startswith("-"):
            self.error(f"there is one argument too many: {shown(word)}")
        near = meant(word, self._option_string_actions)
        self.error(f"there is no {shown(word)[1:-1]}" + (f": did you mean {near}?" if near else ""))

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        # Before 3.13, argparse makes an empty list of `--option=--`.
        if action.option_strings and arg_strings == ["--"]:
            raise argparse.ArgumentError(action, "-- is no value")
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        # For a command that is mistyped, argparse would list all that there are.
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            within = {name: f"{group} {name}" for group, names in self.within.items() for name in names}
            near = self.elsewhere.get(value) or self.outside.get(value) or meant(value, [*action.choices, *within])
            near = within.get(near, near) if near else self.outside.get(meant(value, self.outside) or "")
            hint = f"did you mean {near}?" if near else f"{self.prog} --help lists them"
            self.exit(USAGE, f"{self.prog}: there is no command {shown(_without_password(value))}: {hint}\n")
        is_known = action.choices is None or value in action.choices
        if not is_known and isinstance(value, str) and (near := meant(value, action.choices or ())):
            raise argparse.ArgumentError(action, f"there is no {shown(value)}: did you mean {near}?")
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
        if self._subparsers is None:  # a flag that is mistyped is named before an argument that is missing
            flags = takewhile(lambda word: word != "--", args or ())
            unknown = [word for word in flags if _FLAG.match(word) and not self._has(word)]
            if unknown:
                self.complain(unknown)
            args = sorted_words(self, list(args or ()))
        return super().parse_known_args(args, namespace)

    def _has(self, word: str) -> bool:
        return word.partition("=")[0] in self._option_string_actions


def sorted_words(parser: argparse.ArgumentParser, words: list[str]) -> list[str]:
    """*words* with the flags behind the arguments: argparse takes the last of `jobs -t acct hello` for one too many."""
    flags: list[str] = []
    arguments: list[str] = []
    at = 0
    while at < len(words) and words[at] != "--":
        taken = 1
        if (action := _action_of(parser, words[at])) is not None:
            taken += _values_of(action, words[at + 1 :])
        (arguments if action is None and not _FLAG.match(words[at]) else flags).extend(words[at : at + taken])
        at += taken
    return [*flags, *arguments, *words[at:]] if words[at:] else [*arguments, *flags]


def _action_of(parser: argparse.ArgumentParser, word: str) -> argparse.Action | None:
    """The flag that *word* is, one that takes no more words if *word* has its value; None for an argument."""
    known = parser._option_string_actions
    if word.startswith("--"):
        action = known.get(word.partition("=")[0])
        return argparse._StoreTrueAction([], "") if action is not None and "=" in word else action
    action = known.get(word[:2]) if word[:1] == "-" else None
    for at in range(2, len(word)):  # such as -yn
        if action is None or action.nargs != 0:
            return action and argparse._StoreTrueAction([], "")
        action = known.get(f"-{word[at]}")
    return action


def _values_of(action: argparse.Action, words: list[str]) -> int:
    """How many of *words* are values of a flag."""
    if isinstance(action.nargs, int):
        return action.nargs
    if action.nargs is None:
        return 1
    if action.nargs == "?":  # such as --watch: what is no number is an argument behind it
        takes_text = action.type is None
        return int(any(_NUMBER.match(word) or (takes_text and word[:1] != "-") for word in words[:1]))
    return len([*takewhile(lambda word: word[:1] != "-" or word == "-", words)])


def _without_password(text: str) -> str:
    return re.sub(r"://[^/\s@]*@", "://…@", text)
