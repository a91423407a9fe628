"""A server whose instructions are counted, by valgrind's callgrind: how busy the machine is makes no difference."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.settings import Place, Settings
from shardq.embedded import EmbeddedServer, find_server

OUTPUT: Final = "counts"
START: Final = 60.0
"""Seconds that a server may take to start: it is some fifty times as slow."""
PATIENCE: Final = 30.0
"""Seconds that callgrind may take to write what it has counted."""
QUIET: Final = {"hz": "1", "dynamic-hz": "no"}
"""So that the server does little by itself."""
TOTALS: Final = re.compile(rb"^totals: ([0-9]+)", re.MULTILINE)


class Ground(NamedTuple):
    """A server under callgrind, and the folder to which that writes."""

    place: Place
    counts: Path


@contextlib.contextmanager
def ground(settings: Settings) -> Iterator[Ground]:
    """Start one; SystemExit if there is no valgrind."""
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is missing, which counts instructions: apt-get install valgrind")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shardq-grind-")))
        program = _wrapped(find_server(settings.server or None).path, folder)
        port = 0 if settings.link == "tcp" else None
        server = EmbeddedServer(port=port, binary=str(program), options=QUIET, timeout=START)
        yield Ground(Place(stack.enter_context(server), settings), folder)


def _wrapped(server: str, folder: Path) -> Path:
    """A program that is that server under callgrind. Asked for its version, it is the server itself."""
    program, output = folder / "server", folder / OUTPUT
    valgrind = f"valgrind -q --tool=callgrind --combine-dumps=no --callgrind-out-file={shlex.quote(str(output))}"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exec {shlex.quote(server)} "$@"\n'
        f'exec {valgrind} {shlex.quote(server)} "$@"\n'
    )
    program.chmod(0o700)
    return program


def dumped(pid: int, folder: Path) -> int:
    """How many instructions the server with this *pid* has run since this was asked before."""
    subprocess.run(["callgrind_control", "-d", str(pid)], check=True, capture_output=True)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for file in folder.glob(f"{OUTPUT}.*"):
            if found := TOTALS.search(file.read_bytes()):
                file.unlink()
                return int(found[1])
        time.sleep(0.01)
    raise RuntimeError(f"callgrind did not write its counts within {PATIENCE:g} s")
