"""A page is followed as its reader does: in an empty folder, with files, terminals and a server.

A page with `<!-- follow -->` is. In it

- a block that begins with the path of a file as a comment, as `# app/tasks.py`, is written to that file;
- any other python block is run, as in all pages;
- what a console block has after `$` is typed into a terminal: that of `<!-- terminal: worker -->` above the block, or
  the first one. Below it is what must appear; `...` stands for anything. In the first terminal each command has to end
  well; in another one the last goes on until a line `^C` of that terminal, or the end of the page;
- a unit of systemd, a Dockerfile, a manifest of Kubernetes and settings of Prometheus are tried by `deploying`.

Several pages are followed one after the other, as `HOUR`: in one folder, and what goes on in a terminal does so on the
next page.

The environment of the tests stands for the reader's: none is made, and what `pip install` names must be in it. Another
environment was made as the page says; python blocks that are no files are not followed with it, since they would run in
that of the tests. The checkout lies beside the folder. Ports and folders of the page are replaced by free ones, and
pages that do not start a server find one.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import shlex
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, Final

from tests.house import deploying
from tests.house.doc_blocks import ROOT, Block, blocks, compiled
from tests.house.installed import OURS, satisfied
from tests.house.terminals import Terminal
from tests.parts import PROMETHEUS, PROMETHEUS_BIN

NOTE = deploying.NOTE
FOLLOW = "<!-- follow -->"
FILE = re.compile(r"(?:#|//) ([\w./-]*(?:\.\w+|Dockerfile))\n")
MADE_READY = re.compile(r"python3? -m venv |\. \.venv/bin/activate|npm install ")
ALIVE = "/tmp/alive"  # noqa: S108 (it stands in pages only, and is replaced)
PORTS = ("6379", "8000", "8080", "9090", "9464")
"""Of Redis, a web server, a scaler, Prometheus, and of what it scrapes."""

DRAWN = {"mermaid", "text"}
HOUR: Final = ("docs/tutorial.md", "docs/deploys.md", "examples/monitoring/README.md")
"""A reader's first hour: install, first job, first flood, first failure; first deploy; first alert."""


def hour() -> list[str]:
    """The pages of the first hour that can be followed on this machine."""
    return [*HOUR] if PROMETHEUS.is_there() else [*HOUR[:-1]]


class Reader:
    """Somebody who follows pages, in the empty folder *home*, with the commands of *environment*."""

    def __init__(self, home: Path, environment: Path) -> None:
        self.folder, self._home = home / "reader", home
        self._is_of_the_tests = environment == OURS
        commands = environment / "bin"
        self.folder.mkdir()
        (home / "shardq").symlink_to(ROOT)
        (home / "venv").symlink_to(environment)  # its own name may have a blank, which a unit of systemd has not
        self._ports = dict(zip(PORTS, _free_ports(len(PORTS)), strict=True))
        self._places = {
            "/srv/reports/.venv": str(home / "venv"),
            "/srv/reports": str(self.folder),
            ALIVE: f"{home}/alive",
        }
        self._terminals: dict[str, Terminal] = {}
        self._stack = ExitStack()
        self._names: dict[str, Any] = {"__name__": "__main__"}
        url = f"redis://localhost:{self._ports['6379']}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHONPATH"))}
        self.environment = kept | {
            "PATH": f"{commands}:{_path()}:{PROMETHEUS_BIN}", "VIRTUAL_ENV": str(environment), "SHARDQ_URL": url,
            "NO_COLOR": "1", "PYTHONUNBUFFERED": "1",
            "UVICORN_PORT": self._ports["8000"], "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip

    def follow(self, documents: Sequence[Path]) -> None:
        """Do what *documents* say."""
        os.chdir(self.folder)
        sys.path.insert(0, str(self.folder))
        with self._stack, asyncio.Runner() as runner:
            if not any("$ shardq embedded" in document.read_text() for document in documents):
                self._in_terminal("server of the tests", self._here("$ shardq embedded\n...redis://...\n"))
            for block in chain.from_iterable(map(blocks, documents)):
                if not block.skipped:
                    self._do(block, runner)

    def _do(self, block: Block, runner: asyncio.Runner) -> None:
        code = self._here(block.code)
        try:
            if named := FILE.match(code):
                path = self._written(named[1], code)
                if check := deploying.CHECKS.get(block.language):
                    check(path, self.folder, self.environment)
            elif block.language == "python":
                assert self._is_of_the_tests, "in another environment only files are written, and commands typed"
                self._run(Block(block.document, block.line, "python", code, None), runner)
            elif block.language == "console":
                self._in_terminal(block.terminal, code)
            else:
                assert block.language in DRAWN, "nothing says what a reader does with it"
        except BaseException as error:
            error.add_note(f"at {block}")
            raise

    def _here(self, text: str) -> str:
        for name, port in self._ports.items():
            text = text.replace(name, port)
        for place, there in self._places.items():
            text = text.replace(place, there)
        return text.replace("shardq embedded\n", f"shardq embedded --port {self._ports['6379']}\n")

    def _written(self, name: str, code: str) -> Path:
        path = self.folder / name.removeprefix("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
        for module in [each for each, it in sys.modules.items() if _lies_in(it, self.folder)]:
            del sys.modules[module]  # a file may be written anew
        return path

    def _run(self, block: Block, runner: asyncio.Runner) -> None:
        code = compiled(block, self.environment["SHARDQ_URL"])
        result = eval(code, self._names)  # noqa: S307 - the project's own documents
        if code.co_flags & inspect.CO_COROUTINE:
            runner.run(result)

    def _in_terminal(self, name: str, text: str) -> None:
        terminal = self._terminals.get(name)
        if terminal is None:
            log = self._home / f"terminal {len(self._terminals)}.txt"
            terminal = self._terminals[name] = self._stack.enter_context(Terminal(self.folder, log, self.environment))
        typed = steps(text)
        for number, (command, lines) in enumerate(typed):
            if command == "^C":
                terminal.interrupt()
                terminal.ended(lines=lines, may_be_ended=True)
            elif MADE_READY.match(command):
                print(f"{NOTE}not run, since an environment is there: {command}")
            elif command.startswith("pip install "):
                if self._is_of_the_tests:
                    satisfied(shlex.split(command, comments=True)[2:], self.folder, OURS)
            else:
                terminal.type(command)
                if name and number == len(typed) - 1:
                    terminal.shows(lines)
                else:
                    terminal.ended(lines=lines)


def steps(text: str) -> list[tuple[str, list[str]]]:
    """Return the commands of a console block, each with the lines below it. `^C` is one."""
    found: list[tuple[str, list[str]]] = []
    for line in re.sub(r"\s*\\\n\s*", " ", text).splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line == "^C":
            found.append((line, []))
        else:
            assert found, f"a console block begins with a command, and not with {line!r}"
            found[-1][1].append(line)
    return found


def _free_ports(count: int) -> list[str]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [str(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _path() -> str:
    """PATH without the environment of the tests: what another one lacks must not be found there."""
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if Path(folder) != OURS / "bin")


def _lies_in(module: Any, folder: Path) -> bool:
    return str(getattr(module, "__file__", None) or "").startswith(f"{folder}/")


def is_followed(document: Path) -> bool:
    """Whether *document* is for readers who do what it says."""
    return FOLLOW in document.read_text()


def follow(documents: Sequence[Path], environment: Path = OURS) -> None:
    """Do what *documents* say, in an empty folder, with the commands of a virtual *environment*."""
    assert (environment / "bin" / "shardq").exists(), f"shardq is not installed in {environment}"
    before, path = Path.cwd(), list(sys.path)
    with tempfile.TemporaryDirectory() as name:
        try:
            Reader(Path(name).resolve(), environment).follow(documents)
        finally:
            os.chdir(before)
            sys.path[:] = path
