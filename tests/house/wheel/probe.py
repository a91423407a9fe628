"""Runs in an environment in which shardq is installed, by the Python of that: what does a user meet there?

It gets a `Request` and prints a `Found`, both as JSON, and imports nothing of the checkout. What is to begin in a fresh
interpreter begins in a child of this process, which has imported nothing of shardq itself.
"""

from __future__ import annotations

import contextlib
import gc
import http.client
import importlib
import importlib.metadata
import importlib.util
import json
import os
import pkgutil
import re
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urljoin, urlsplit

TOPS = ("shardq", "pyspark_shardq")
PLUGIN = "pytest_shardq"
"""Only pytest imports it."""

FOREIGN = (
    "argparse", "asyncio", "concurrent.futures", "dataclasses", "logging", "redis", "redis.asyncio", "redis.cluster",
    "redis.sentinel", "msgspec", "opentelemetry.trace", "google.protobuf", "grpc", "grpc_health.v1.health", "numpy",
    "matplotlib.figure", "pandas", "pyarrow.compute", "pyspark.sql", "django", "pytest",
)  # fmt: skip
"""What takes long to import and is not shardq's: each child finds it imported, where it is installed."""

NEEDS = re.compile(r"[Nn]eeds the extra (\w+): pip install 'shardq\[(\w+)\]'")
MEMBERS = re.compile(r"^(?:commands|pipelines|reports):\n((?:    .*\n)+)", re.MULTILINE)
REFERENCE = re.compile(r'(?:src|href|from)[= ]"([^"#{]+)"|import "([^"]+)"')
"""How the files of the page name each other."""
SCREENS = ("overview", "queue", "tenants", "tenant", "message", "failures", "workers", "schedules", "settings")
"""Scripts of the page that no other names."""
MAX_SHOWN = 200
"""Characters of an error."""
MAX_LISTED = 4


@dataclass
class Request:
    """The extras that are installed here, what the pages show that install just them, and what the core *lacks*.

    These are modules that need an extra. In the core itself nobody knows them yet.
    """

    extras: list[str]
    shown: list[tuple[str, str]]
    lacks: list[str] | None


@dataclass
class Found:
    """What is wrong, what was looked at, and which modules say that they need an extra that is not here."""

    problems: list[str] = field(default_factory=list)
    modules: int = 0
    commands: int = 0
    scripts: int = 0
    lacks: list[str] = field(default_factory=list)


def look(request: Request) -> Found:
    """Import all modules, ask for all help, and look whether the pages' commands have what they need."""
    for name in FOREIGN:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()  # else the children would copy all of it
    gc.disable()
    extras = with_those_inside(request.extras)
    found = Found()
    look_at_modules(found, extras, request.lacks)
    look_at_scripts(found)
    needs = look_at_commands(found)
    if "dashboard" in extras:
        found.problems += problems_of_the_page()
    for page, words in request.shown:
        name = words if words in needs else words.split()[0]
        if name not in needs:
            found.problems.append(f"{page} shows `shardq {words}`, which is no command")
        elif needs[name] and needs[name] not in extras:
            found.problems.append(f"{page} shows `shardq {words}` and does not install the extra {needs[name]}")
    return found


def listed(names: Sequence[str]) -> str:
    """The *names* in a line that can be read."""
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return f"{', '.join(names[:MAX_LISTED])}{more}"


def with_those_inside(extras: Sequence[str]) -> set[str]:
    """The *extras* and those whose packages they all bring."""
    packages: dict[str, set[str]] = {}
    for line in importlib.metadata.requires("shardq") or ():
        if brought := re.match(r"([^;]+);.*extra == ['\"](\w+)['\"]", line):
            packages.setdefault(brought[2], set()).add(brought[1])
    return {*extras, *(name for each in extras for name, own in packages.items() if own <= packages.get(each, set()))}


# --- modules ---------------------------------------------------------------------------------------------------

Problems = dict[str, str | None]
"""What became of modules, by name: '' is well, None says which extra it needs."""


def look_at_modules(found: Found, extras: set[str], lacks: Iterable[str] | None) -> None:
    """Import all public modules in one child, and then each that the core lacks (or in the core all) in its own."""
    tops = [*TOPS, *([PLUGIN] if "pytest" in sys.modules else [])]
    names = [name for top in tops for name in walked(top, folders_of(top))]
    together: Problems = in_child(lambda: {name: problem_of(name, extras) for name in names})
    found.modules = len(names)
    found.lacks = [name for name, problem in together.items() if problem is None]
    wanted = {*names} if lacks is None else {*lacks} - {*found.lacks}
    alone: Problems = {}
    for top in tops:
        alone |= imported_alone(top, folders_of(top), with_packages(wanted), extras)
    by_problem: dict[str, list[str]] = {}
    for name in names:
        for problem in {together[name], alone.get(name)} - {"", None}:
            by_problem.setdefault(str(problem), []).append(name)
    found.problems += [f"importing {listed(each)} ends in {problem}" for problem, each in by_problem.items()]


def imported_alone(name: str, folders: list[str], wanted: Collection[str], extras: set[str]) -> Problems:
    """Import a module in a child, and those *wanted* below it each in a child of that.

    To import a module is to import the packages above it first, so they are what a fresh interpreter would have.
    """
    if name not in wanted:
        return {}

    def import_all() -> Problems:
        problems: Problems = {name: problem_of(name, extras)}
        for below, its_folders in modules_in(name, folders):
            problems |= imported_alone(below, its_folders, wanted, extras)
        return problems

    try:
        return in_child(import_all)
    except ChildProcessError as error:
        return {name: str(error)}


def problem_of(name: str, extras: set[str]) -> str | None:
    """What is wrong with the import of a module; None if it says in one line which extra it needs."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            importlib.import_module(name)
    except BaseException as error:  # noqa: BLE001 - whatever a user would meet
        text = str(error)
        needed = NEEDS.search(text)
        if isinstance(error, ImportError) and needed and needed[1] not in extras and "\n" not in text:
            return None
        return f"{type(error).__name__}: {text}"[:MAX_SHOWN]
    return ""


def in_child(work: Callable[[], Problems]) -> Problems:
    """What *work* returns in a child of this process. ChildProcessError if the child ends before."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        with contextlib.suppress(BaseException), os.fdopen(writing, "w") as answer:
            json.dump(work(), answer)
            answer.flush()
            os._exit(0)
        os._exit(1)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    if code := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise ChildProcessError(f"the end of its process, with {code}")
    problems: Problems = json.loads(text)
    return problems


def folders_of(name: str) -> list[str]:
    """The folders of a package, which is not imported for it."""
    spec = importlib.util.find_spec(name)
    assert spec is not None, f"{name} is not installed"
    return list(spec.submodule_search_locations or ())


def walked(name: str, folders: list[str]) -> Iterator[str]:
    """The names of a package and of all public modules below it."""
    yield name
    for below, its_folders in modules_in(name, folders):
        yield from walked(below, its_folders)


def modules_in(name: str, folders: list[str]) -> Iterator[tuple[str, list[str]]]:
    """The public modules right in a package, each with the folders of its own modules."""
    for each in pkgutil.iter_modules(folders):
        if not each.name.startswith("_"):
            yield f"{name}.{each.name}", [f"{folder}/{each.name}" for folder in folders] if each.ispkg else []


def with_packages(names: Iterable[str]) -> set[str]:
    """The *names* of modules and of the packages above them."""
    return {name.rsplit(".", above)[0] for name in names for above in range(name.count(".") + 1)}


# --- scripts ---------------------------------------------------------------------------------------------------


def look_at_scripts(found: Found) -> None:
    """Load the scripts for Redis, which are files of the wheel."""
    try:
        from shardq.protocol import scripts

        found.scripts = len([scripts.load(name).sha for name in scripts.names()])
    except Exception as error:  # noqa: BLE001 - whatever a user would meet
        found.problems.append(f"loading the scripts ends in {type(error).__name__}: {error}"[:MAX_SHOWN])


# --- commands --------------------------------------------------------------------------------------------------


def look_at_commands(found: Found) -> dict[str, str]:
    """Ask for all help. Return the extra that each command needs, as its help says; '' for none."""
    names = [name.rpartition(".")[2].replace("_", "-") for name, _ in modules_in("", folders_of("shardq.cli.commands"))]
    look_at_the_program(found, typo=f"{names[0]}x", meant=names[0])
    importlib.import_module("shardq.client")  # once, and not in each child
    needs: dict[str, str] = {}
    while names:
        name = names.pop(0)
        ended = forked([*name.split(), "--help"])
        found.commands += 1
        found.problems += ended.problems(0)
        needed = NEEDS.search(ended.out)
        needs[name] = needed[1] if needed else ""
        if members := MEMBERS.search(ended.out):
            names += [f"{name} {each}" for each in re.findall(r"^    ([a-z]\S*)", members[1], re.MULTILINE)]
    return needs


def look_at_the_program(found: Found, *, typo: str, meant: str) -> None:
    """Run the program that is installed, without a command."""
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for words, code in (("", 2), ("-h", 0), ("--help", 0), ("--version", 0), ("help", 0), (typo, 2)):
        program = [str(Path(sys.executable).with_name("shardq")), *words.split()]
        told = subprocess.run(program, capture_output=True, text=True, timeout=60, env=surroundings)
        ended = Ended(f"shardq {words}".strip(), told.returncode, told.stdout, told.stderr)
        problems = [*ended.problems(code)]
        if words == typo and not problems and not re.fullmatch(rf".*did you mean {re.escape(meant)}\?\n", ended.err):
            problems = [f"`shardq {typo}` does not ask in one line whether {meant} was meant"]
        found.problems += problems


@dataclass
class Ended:
    """How a command ended."""

    words: str
    code: int
    out: str
    err: str

    def problems(self, code: int) -> Iterator[str]:
        """What is wrong with a command that should end with this code."""
        if "Traceback" in self.err:
            yield f"`{self.words}` ends in {self.err.strip().splitlines()[-1][:MAX_SHOWN]}"
        elif self.code != code:
            yield f"`{self.words}` ends with {self.code}, and not with {code}"


def forked(words: list[str]) -> Ended:
    """Run a command in a child of this process."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if not pid:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            os._exit(code_of(words))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out.seek(0)
        err.seek(0)
        return Ended(f"shardq {' '.join(words)}", code, out.read().decode(), err.read().decode())


def code_of(words: list[str]) -> int:
    """Be the command. Return what it ends with."""
    code: object = 1
    try:
        from shardq.cli import main

        code = main(words)
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else 0 if code is None else 1


# --- the page --------------------------------------------------------------------------------------------------


def problems_of_the_page() -> list[str]:
    """Serve the page of a Redis that is not there, and look whether a browser gets all that it asks for."""
    program = [str(Path(sys.executable).with_name("shardq")), "serve", "dashboard", "--listen", "127.0.0.1:0", "--json"]
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    with subprocess.Popen([*program, "--url", "redis://127.0.0.1:1"], stdout=subprocess.PIPE, env=surroundings) as page:
        try:
            assert page.stdout
            line = page.stdout.readline()
            if not line:
                return [f"`{' '.join(program[1:])}` says nothing, and ends with {page.wait()}"]
            site = http.client.HTTPConnection(urlsplit(json.loads(line)["address"]).netloc, timeout=60)
            return [f"the page has no {path}" for path in files_of_the_page(site)]
        finally:
            page.kill()


def files_of_the_page(site: http.client.HTTPConnection) -> Iterator[str]:
    """What the page refers to, and what that imports, of which the site has none."""
    wanted = ["", *(f"js/screens/{name}.js" for name in SCREENS)]
    for path in wanted:  # which grows
        site.request("GET", f"/{path}")
        answer = site.getresponse()
        text = answer.read().decode()
        if answer.status != 200:
            yield path
        for reference in REFERENCE.finditer(text):
            referred = urljoin(path, reference[1] or reference[2])
            if referred not in wanted:
                wanted.append(referred)


if __name__ == "__main__":
    print(json.dumps(asdict(look(Request(**json.loads(sys.argv[1]))))))
