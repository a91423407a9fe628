"""The entry point of the command `shardq`: parse, run one command, report an error as one line and an exit code."""

from __future__ import annotations

import argparse
import io
import logging
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import shardq
from shardq.cli.commands import NAMES, load
from shardq.cli.exits import (
    CLOSED_PIPE,
    FAILED,
    INTERRUPTED,
    MEANING,
    NOTHING,
    OK,
    TERMINATED,
    USAGE,
    Declined,
    Nothing,
    UsageError,
)
from shardq.cli.output import remark, say
from shardq.cli.parsing import DEFAULT_TIMEOUT, DEFAULT_URL, Help, add_common
from shardq.cli.shell import Shell
from shardq.cli.text import printable, shown_url
from shardq.errors import (
    BackendTimeout,
    ConfigError,
    Empty,
    MessageNotFound,
    QueueMissing,
    ScheduleNotFound,
    ShardqError,
)

EXAMPLES = """examples:
  shardq embedded                 # in another terminal: a server to try it on
  shardq write predictions '{"prompt": "a cat"}' --as json -k tenant-42
  shardq read predictions --ack
  shardq stats predictions --watch"""


class Discreet(argparse.ArgumentParser):
    """A parser that shows no password of a URL that it does not understand, and nothing that a terminal would obey."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end."""
        super().error(printable(re.sub(r"://[^/\s@]*@", "://…@", message)))

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        # Before 3.13, argparse makes an empty list of `--option=--`.
        if action.option_strings and arg_strings == ["--"]:
            raise argparse.ArgumentError(action, "-- is no value")
        return super()._get_values(action, arg_strings)


def parser(names: Iterable[str] = NAMES) -> argparse.ArgumentParser:
    """The parser, with the commands of these *names*."""
    top: argparse.ArgumentParser = Discreet(
        prog="shardq",
        description="Write, read, inspect and change shardq's queues in Redis.",
        epilog=f"{EXAMPLES}\n\n{MEANING}",
        formatter_class=Help,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"shardq {shardq.__version__}")
    add_common(top)
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in names:
        load(name).add_to(commands)
    return top


def _names_in(argv: Sequence[str]) -> Sequence[str]:
    """The name of the command that *argv* is for, so that no other is loaded; all if that is not plain."""
    before = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    add_common(before)
    try:
        _, rest = before.parse_known_args(argv)
    except argparse.ArgumentError:  # the real parser says what is wrong
        return NAMES
    return rest[:1] if rest and rest[0] in NAMES else NAMES


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line *argv*; returns the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    words = sys.argv[1:] if argv is None else argv
    if not words:
        parser().print_help(sys.stderr)
        return USAGE
    args = parser(_names_in(words)).parse_args(words)
    url = args.url or os.environ.get("SHARDQ_URL") or DEFAULT_URL
    timeout = DEFAULT_TIMEOUT if args.timeout is None else args.timeout
    _show_warnings()
    before = _end_on_sigterm()
    shell = Shell(url, timeout, json=bool(args.json))
    try:
        code: int = args.run(args, shell) or OK
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
        code = CLOSED_PIPE
    except KeyboardInterrupt:
        _forget_stdout()
        code = INTERRUPTED
    except SystemExit:  # SIGTERM
        _forget_stdout()
        raise
    except (ShardqError, UsageError, Declined, Nothing, OSError) as error:
        code = _explained(error, url)
        if isinstance(error, OSError):
            _forget_stdout()  # stdout may be what failed; Python would flush it once more and exit with code 120
    finally:
        shell.close()
        if before is not None:
            signal.signal(signal.SIGTERM, before)
    return code


def _explained(error: Exception, url: str) -> int:
    """Print what went wrong; returns the exit code for it."""
    text = " ".join(str(error).split())
    if isinstance(error, BackendTimeout):
        text += f"; is there a server at {shown_url(url)} (--url, SHARDQ_URL)?"
    remark(text or type(error).__name__)
    if isinstance(error, (Nothing, Empty, MessageNotFound, QueueMissing, ScheduleNotFound)):
        return NOTHING
    return USAGE if isinstance(error, (UsageError, ConfigError)) else FAILED


class _Remarks(logging.Handler):
    """Prints the library's warnings as remarks."""

    def emit(self, record: logging.LogRecord) -> None:
        remark(f"{record.levelname.lower()}: {record.getMessage()}")
        if record.exc_info:
            trace = "".join(traceback.format_exception(record.exc_info[1]))
            say(trace.rstrip(), file=sys.stderr)


def _show_warnings() -> None:
    log = logging.getLogger("shardq")
    if not any(isinstance(handler, _Remarks) for handler in log.handlers):
        log.addHandler(_Remarks(logging.WARNING))


def _end_on_sigterm() -> Any:
    """Let SIGTERM end the command as Ctrl-C does: messages are given back, connections closed. The handler before."""
    if threading.current_thread() is threading.main_thread():
        return signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    return None


def _forget_stdout() -> None:
    """Send stdout to /dev/null: its reader has ended or hangs, and the interpreter's last flush would fail or wait."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):
        return  # it is no file, or closed: what was wrong before is to be told, not that
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), number)
