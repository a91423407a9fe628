"""What there is: the help and a typo import no command, and what needs a missing extra says how to get it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable

import pytest

from shardq.cli.commands import COMMANDS, edge, pipeline, report
from shardq.cli.program import main
from shardq.extras import MODULES
from tests.cli.conftest import Command, Told
from tests.cli.forks import ROOT
from tests.surface import commands

MEMBERS = [
    *(("edge", name) for name in edge.MENU.summaries),
    *(("pipeline", name) for name in pipeline.MENU.summaries),
    *(("report", name) for name in report.MENU.summaries),
]
"""The commands of those that have commands of their own."""

NEEDED = {"edge": "edge", "serve gateway": "gateway", "pipeline": "spark", "report": "reports"}
"""The extra that a command needs, or those of it."""

PROGRAM = """
import contextlib, io, json, sys, traceback
from tests.absent import Absent

sys.meta_path.insert(0, Absent(sys.argv[1].split()))
from shardq.cli.program import main

told = {}
for words in sys.argv[2:]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(words.split())
        except SystemExit as ended:
            code = ended.code
        except Exception:
            code = traceback.print_exc()
    told[words] = code, out.getvalue(), err.getvalue()
json.dump([told, [*sys.modules]], sys.stdout)
"""


def run(*lines: str, absent: Iterable[str] = ()) -> tuple[dict[str, Told], set[str]]:
    """Run command lines in one process, one after the other, where packages are *absent*.

    Return how each ended, and which modules are imported then.
    """
    command = [sys.executable, "-c", PROGRAM, " ".join(absent), *lines]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, cwd=ROOT)
    told, modules = json.loads(ended.stdout)
    return {words: Told(*each) for words, each in told.items()}, set(modules)


def test_the_help_and_a_typo_import_no_command() -> None:
    lines = ("", "--help", "-h", "--version", "help", "statz", "help statz", "--json nonsense", "--timeout x")
    told, modules = run(*lines)
    assert [each.code for each in told.values()] == [2, 0, 0, 0, 0, 2, 2, 2, 2]
    heavy = (
        "redis",
        "shardq.client",
        "shardq.model",
        "shardq.cli.commands.",
        "shardq.cli.edge",
        "shardq.cli.pipelines",
        "shardq.cli.reports",
    )
    assert [name for name in modules if name.startswith(heavy)] == []


def test_no_help_imports_what_speaks_to_redis() -> None:
    told, modules = run(*(f"{name} --help" for name in commands()))
    assert [name for name, each in told.items() if each.code] == []
    assert [name for name in modules if name.partition(".")[0] == "redis"] == []
    assert "shardq.client" not in modules


def test_a_command_with_commands_of_its_own_imports_none_of_them() -> None:
    _, modules = run("edge --help", "edge", "edge sned", "help pipeline", "pipeline x")
    loaded = {
        name for name in modules if name.startswith(("shardq.cli.commands.", "shardq.cli.edge", "shardq.cli.pip"))
    }
    assert loaded == {"shardq.cli.commands.edge", "shardq.cli.commands.pipeline"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("statz", "shardq: there is no command 'statz': did you mean stats?"),
        ("help stat", "shardq: there is no command 'stat': did you mean stats?"),
        ("--json serve tokn x", "shardq serve: there is no command 'tokn': did you mean token?"),
        ("doctr", "shardq: there is no command 'doctr': did you mean server doctor?"),
        ("bind", "shardq: there is no command 'bind': did you mean topics bind?"),
        ("dead jobs", "shardq: there is no command 'dead': did you mean failures --letters?"),
        ("top jobs", "shardq: there is no command 'top': did you mean tenants --watch?"),
        ("help next", "shardq: there is no command 'next': shardq --help lists them"),
        ("nonsense", "shardq: there is no command 'nonsense': shardq --help lists them"),
        ("edge sned x", "shardq edge: there is no command 'sned': did you mean send?"),
        ("server embedded", "shardq server: there is no command 'embedded': did you mean shardq embedded?"),
        ("serve worker", "shardq serve: there is no command 'worker': did you mean shardq worker?"),
        ("topics statz", "shardq topics: there is no command 'statz': did you mean shardq stats?"),
        ("server doctr", "shardq server: there is no command 'doctr': did you mean doctor?"),
        ("server peek x", "shardq server: there is no command 'peek': did you mean shardq peek?"),
        ("pipeline x", "shardq pipeline: there is no command 'x': shardq pipeline --help lists them"),
        ("redis://me:secret@host", "shardq: there is no command 'redis://…@host': shardq --help lists them"),
        ("sta\x1bts", r"shardq: there is no command 'sta\x1bts': did you mean stats?"),
    ],
)
def test_a_typo_is_one_line_that_names_what_was_meant(cli: Command, words: str, told: str) -> None:
    ended = cli(*words.split(" "))
    assert (ended.code, ended.out, ended.err) == (2, "", f"{told}\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("tenants jobs --order oldst", "shardq tenants: argument --order: there is no 'oldst': did you mean oldest?"),
        ("actions jobs takeover 1", "shardq actions: argument ACTION: there is no 'takeover': did you mean take-over?"),
        ("read jobs --count 5", "shardq read: there is no --count"),
    ],
)
def test_a_mistyped_choice_names_what_was_meant(cli: Command, words: str, told: str) -> None:
    found = cli(*words.split())
    assert (found.code, found.err.splitlines()[-1]) == (2, told)


def test_a_command_that_is_a_whole_text_is_cut_short(cli: Command) -> None:
    assert len(cli("x" * 60_000).err) < 120


@pytest.mark.parametrize("words", ["", "stats", "edge", "edge send", "help"])
def test_help_is_a_command_too(cli: Command, words: str) -> None:
    told = cli("help", *words.split())
    assert (told.code, told.err) == (0, "")
    assert told.out == cli(*words.replace("help", "").split(), "--help").out


@pytest.mark.parametrize("words", MEMBERS, ids=" ".join)
def test_every_command_of_a_command_explains_itself(words: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    told = capsys.readouterr().out
    assert ended.value.code == 0
    assert told.startswith(f"usage: shardq {' '.join(words)} ")
    assert re.search(r"^Needs the extra \w+: pip install 'shardq\[\w+\]'$", told, re.MULTILINE)


HELPED = ("edge", "serve gateway", "pipeline", "edge refused", "edge send", "pipeline archive", "report", "report fair")
REFUSED = {
    "edge status --spool x": "edge",
    "edge send jobs x -t t --spool x --gateway localhost:1": "edge",
    "edge run --spool x --gateway localhost:1": "edge",
    "serve gateway --listen 127.0.0.1:0 --insecure": "gateway",
    "serve scaler --listen 127.0.0.1:0 --grpc 127.0.0.1:0": "scaler",
    "pipeline archive x jobs": "spark",
    "report fair .": "reports",
    "what-if . --plot x.svg": "plot",
}


@pytest.fixture(scope="module")
def bare() -> dict[str, Told]:
    """How commands end where no package of an extra is installed."""
    absent = {module.partition(".")[0] for modules in MODULES.values() for module in modules}
    told, _ = run(*(f"{name} --help" for name in HELPED), *REFUSED, absent=absent)
    return told


@pytest.mark.parametrize("name", HELPED)
def test_the_help_of_what_needs_a_missing_extra_says_how_to_get_it(name: str, bare: dict[str, Told]) -> None:
    extra, told = NEEDED[name if name in NEEDED else name.partition(" ")[0]], bare[f"{name} --help"]
    assert (told.code, told.err) == (0, "")
    assert f"\nNeeds the extra {extra}: pip install 'shardq[{extra}]'\n" in told.out


@pytest.mark.parametrize(("words", "extra"), REFUSED.items())
def test_what_needs_a_missing_extra_says_so_in_one_line(words: str, extra: str, bare: dict[str, Told]) -> None:
    told = bare[words]
    assert told.code == 2
    line = rf"shardq: .* needs the extra {extra}: pip install 'shardq\[{extra}\]' \([\w.]+ is missing\)\n"
    assert re.fullmatch(line, told.err)


def test_what_is_called_otherwise_elsewhere_names_a_command_that_there_is() -> None:
    for name, told in COMMANDS.elsewhere.items():
        assert name not in COMMANDS.summaries
        assert told.split()[0] in COMMANDS.summaries
