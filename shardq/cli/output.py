"""Where a command's text leaves it: the only place that prints, so that no text reaches a terminal as it is stored.

A tenant may put terminal escapes, or characters that reverse a line, into whatever is stored: payloads, shard keys,
headers, reasons, errors, notes, names. Here they become printable. Line ends and tabs stay, which a command puts
between its own texts; so a text that is stored becomes one line before, in `facts` and `draw`, or by `printable`.
JSON has no such characters (`json_line`) and stays exact.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import TextIO

from shardq.cli.parsers import WIDTH
from shardq.cli.text import printable

_CLEAR = "\x1b[H\x1b[J"


def say(text: str = "", *, end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Print *text* on stdout, or on another *file*."""
    print(printable(text, keep="\n\t"), end=end, file=file, flush=flush)


def remark(text: str, *, file: TextIO | None = None) -> None:
    """Print one line on stderr; on a terminal in as many as it needs."""
    stream = file or sys.stderr
    say(folded(f"shardq: {printable(text)}", stream), file=stream, flush=True)


def folded(text: str, stream: TextIO) -> str:
    """*text*, broken into lines that fit if *stream* is a terminal; elsewhere it stays a line, which a log keeps."""
    if len(text) <= WIDTH or not stream.isatty():
        return text
    columns = min(WIDTH, shutil.get_terminal_size().columns)
    return "\n".join(textwrap.wrap(text, columns, subsequent_indent="  ", break_on_hyphens=False))


def say_over(text: str) -> None:
    """Write *text* on stderr, a terminal, in the place of what was written so before."""
    print(printable(text), end="\r", file=sys.stderr, flush=True)


def clear() -> None:
    """Clear the terminal, if stdout is one."""
    if sys.stdout.isatty():
        print(end=_CLEAR)
