"""The client for threads, from the one for asyncio: `python -m tests.house.twins` writes it, `--check` compares.

`translated` changes a source token by token, so that its comments stay:

- `async` and `await` are left out. `__aenter__` and its like lose their `a`, and `AsyncQueue`, `async_queue` and such
  their `async`. `NAMES` has the names that differ otherwise.
- `except asyncio.CancelledError` is left out, since nobody cancels a thread. A `try` that has nothing else is left out
  around what it tries.
- `CODE` is replaced as it stands.
- The names in texts and comments are translated, too. `PHRASES` has what is true of one client only. The examples of
  docstrings, which begin with ">>>", are code: `async` and `await` are left out of them.
- ruff leaves out the imports that nobody needs any more, and formats the result.

It cannot translate asyncio itself, such as tasks and futures. What needs them is written by hand, once for each client,
in modules that `NAMES` lists: `async_base` and `sync_base`, say. It does not see an `await` in the braces of a text, or
a phrase that is spread over two lines; and a `try` that is left out must have no text of several lines in it.
"""

from __future__ import annotations

import ast
import io
import itertools
import re
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import Final

CLIENT: Final = Path(__file__).resolve().parents[2] / "shardq" / "client"
GENERATED: Final = (
    "action", "admin", "client", "delivery", "job", "partitions", "queue", "schedules", "untold", "writer",
)  # fmt: skip
"""These modules are generated, each from the module `async_*` beside it."""

NAMES: Final = {
    "AsyncBaseClient": "SyncBaseClient",
    "aclose": "close",  # contextlib.aclosing expects the other
    "async_base": "sync_base",
    "async_stands": "sync_stands",
    "async_writing": "sync_writing",
}
RULES: Final = {r"^Async(?=[A-Z])": "", r"^async_": "", r"^__a(?=(enter|exit|iter|next)__$)": "__"}

CODE: Final = {
    # Any thread may use a client.
    "self._ready_on is not get_running_loop()": "not self._is_ready",
    "        loop = self._checked_loop()\n": "",
    "self._ready_on = None if self._closed else loop": "self._is_ready = not self._closed",
}
"""What differs in the code itself."""

PHRASES: Final = {
    "for asyncio (`make twins` makes the one for threads)": "for threads",
    ", for one event loop.": ". One per process is enough.",
    "The first call binds it to the running loop.": "Safe across threads and usable after a fork.",
    "used by the tasks of one event loop": "used by the threads of one process",
}
EXAMPLE: Final = re.compile(r"^ *(?:>>>|\.\.\.) .*$", re.MULTILINE)
"""A line of code in a docstring."""


def translated(source: str) -> str:
    """Return what *source* is for threads; not yet formatted. ValueError if it needs asyncio."""
    source = _without_cancellation(source)
    for phrase, other in CODE.items():
        source = source.replace(phrase, other)
    starts = [0, *itertools.accumulate(map(len, source.splitlines(keepends=True)))]
    parts, at = [], 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        begin, end = (starts[row - 1] + column for row, column in (token.start, token.end))
        parts.append(source[at:begin])
        at = end
        if token.string in ("async", "await"):
            at += 1  # and the blank behind it
        elif token.string == "asyncio" and not token.line.startswith(("import", "from")):
            raise ValueError(f"this line needs asyncio: {token.line.strip()}")
        else:
            parts.append(_reworded(source[begin:end]))
    return "".join(parts).replace("\nimport asyncio\n", "\n")


def _without_cancellation(source: str) -> str:
    """Return *source* without what it does when its task is cancelled."""
    lines: list[str | None] = [*source.splitlines(keepends=True)]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Try):
            for handler in filter(_is_of_cancellation, node.handlers):
                if not (node.handlers[1:] or node.orelse or node.finalbody):
                    lines[node.lineno - 1] = None
                    body = slice(node.lineno, handler.lineno - 1)
                    lines[body] = [line and line.removeprefix("    ") for line in lines[body]]
                clause = slice(handler.lineno - 1, handler.end_lineno)
                lines[clause] = [None] * len(lines[clause])
    return "".join(line for line in lines if line is not None)


def _is_of_cancellation(handler: ast.ExceptHandler) -> bool:
    return handler.type is not None and ast.unparse(handler.type) == "asyncio.CancelledError"


def _reworded(text: str) -> str:
    for phrase, other in PHRASES.items():
        text = text.replace(phrase, other)
    text = EXAMPLE.sub(lambda found: re.sub(r"\b(?:async|await) ", "", found[0]), text)
    return re.sub(r"\w+", lambda found: _renamed(found[0]), text)


def _renamed(name: str) -> str:
    if name in NAMES:
        return NAMES[name]
    for rule, other in RULES.items():
        name = re.sub(rule, other, name)
    return name


def generated(name: str) -> str:
    """Return the module *name* as it should be."""
    head = (
        f"# Generated from async_{name}.py by tests/house/twins.py. Do not change it: change that, run `make twins`.\n"
    )
    text = head + translated((CLIENT / f"async_{name}.py").read_text())
    text = _ruff(name, text, "check", "--fix", "--exit-zero", "--select=F401,I")
    return _ruff(name, text, "format")


def _ruff(name: str, text: str, *command: str) -> str:
    path = str(CLIENT / f"{name}.py")
    ruff = [sys.executable, "-m", "ruff", *command, "--quiet", f"--stdin-filename={path}", "-"]
    return subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout


def main(arguments: list[str]) -> int:
    """Write the modules. With `--check`, name those that differ instead, and return 1 if there is one."""
    if "--check" not in arguments:
        for name in GENERATED:
            (CLIENT / f"{name}.py").write_text(generated(name))
        return 0
    stale = [name for name in GENERATED if (CLIENT / f"{name}.py").read_text() != generated(name)]
    for name in stale:
        print(f"twins: {name}.py is not what async_{name}.py makes of it: run make twins", file=sys.stderr)
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
