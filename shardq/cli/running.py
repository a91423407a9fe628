"""One run of a command: it gets a shell, and an error becomes one line and an exit code."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Final

from shardq.cli.exits import (
    CLOSED_PIPE,
    EXIT_NOTHING,
    FAILED,
    INTERRUPTED,
    OK,
    TERMINATED,
    USAGE,
    Declined,
    NothingThere,
    UsageError,
)
from shardq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL
from shardq.cli.output import remark, say
from shardq.cli.parsers import WIDTH
from shardq.cli.parsing import Args
from shardq.cli.shell import Shell
from shardq.cli.speech import traceback_of
from shardq.cli.text import shown_url
from shardq.errors import (
    BackendTimeout,
    ConfigError,
    Empty,
    MessageNotFound,
    QueueMissing,
    ScheduleNotFound,
    ShardqError,
)

_UNREACHED: Final = re.compile(r"Error -?\d+ connecting to \S+ ([^.)]+)")
"""How redis-py says that it has not come as far as the server."""


def run(args: Args) -> int:
    """Run the command of *args*; returns the exit code."""
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
    except (ShardqError, UsageError, Declined, NothingThere, OSError) as error:
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
        text = _without_server(text, shown_url(url))
    remark(text or type(error).__name__)
    if isinstance(error, (NothingThere, Empty, MessageNotFound, QueueMissing, ScheduleNotFound)):
        return EXIT_NOTHING
    return USAGE if isinstance(error, (UsageError, ConfigError)) else FAILED


def _without_server(text: str, url: str) -> str:
    """The remedy where no server answers; why it does not, if that fits into a line."""
    reached = _UNREACHED.search(text)
    if reached is None:
        return f"{text}; is there a server at {url} (--url, SHARDQ_URL)?"
    why = f"no Redis at {url} ({reached[1].lower()}); --url or SHARDQ_URL names another"
    return why if len(why) <= WIDTH - len("shardq: ") else f"no Redis at {url}; --url names another"


class _Remarks(logging.Handler):
    """Prints the library's warnings as remarks."""

    def emit(self, record: logging.LogRecord) -> None:
        remark(f"{record.levelname.lower()}: {record.getMessage()}")
        if trace := traceback_of(record):
            say(trace, file=sys.stderr)


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
        return  # it is no file, or closed: the earlier problem is to be reported, not that
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), number)
