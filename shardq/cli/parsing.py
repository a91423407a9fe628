"""What the parsers of all commands share."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable
from itertools import groupby
from typing import Any, TypeAlias

from shardq.cli.exits import MEANING
from shardq.cli.shell import Shell

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
Run: TypeAlias = Callable[[argparse.Namespace, Shell], int]
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


def command(
    commands: Commands, name: str, run: Run, summary: str, *, about: str = "", examples: str = ""
) -> argparse.ArgumentParser:
    """A new command with the common options; *run* gets the arguments and a shell, and returns the exit code."""
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.\n\n{about}".strip(),
        epilog=f"examples:\n{examples}\n\n{MEANING}" if examples else MEANING,
        formatter_class=Help,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    add_common(parser, default=argparse.SUPPRESS)
    return parser


def add_common(parser: argparse.ArgumentParser, *, default: Any = None) -> None:
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


def add_queue(parser: argparse.ArgumentParser) -> None:
    """Add the argument for the queue's name."""
    parser.add_argument("queue", metavar="QUEUE", help="the queue's name")


def add_router(parser: argparse.ArgumentParser) -> None:
    """Add the option for the router's name."""
    parser.add_argument(
        "--router", metavar="NAME", default="default", help="the router, a named set of bindings (default)"
    )


def add_yes(parser: argparse.ArgumentParser) -> None:
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


def header(text: str) -> tuple[str, str]:
    """`name=value`."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, not {text!r}")
    return name, value
