"""What there is: the help and a typo import no command, and what needs a missing extra says how to get it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from shardq.cli.commands import COMMANDS, edge, pipeline
from shardq.cli.program import main
from shardq.extras import MODULES
from tests.cli.conftest import Command
from tests.cli.forks import ROOT

MEMBERS = [
    *(("edge", name) for name in edge.MENU.summaries),
    *(("pipeline", name) for name in pipeline.MENU.summaries),
]
"""The commands of those that have commands of their own."""

QUICK = """
import contextlib, io, sys
from shardq.cli.program import main
for words in (line.split() for line in sys.argv[1].splitlines()):
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        with contextlib.redirect_stderr(io.StringIO()):
            main(words)
heavy = ("shardq.client", "shardq.model", "shardq.cli.commands.", "shardq.cli.edge", "shardq.cli.pipelines")
print(sorted(name for name in sys.modules if name == "redis" or name.startswith(heavy)))
"""
EXTRAS = {"edge": "edge", "gateway": "gateway", "pipeline": "spark"}
"""What the command needs, and those of it."""


def bare(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a command where no package of an extra is installed."""
    names = ",".join({module.partition(".")[0] for modules in MODULES.values() for module in modules})
    command = [sys.executable, "-m", "tests.absent", names, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)


def quick(lines: str) -> subprocess.CompletedProcess[str]:
    """Run commands one after the other, and print what they have imported."""
    return subprocess.run([sys.executable, "-c", QUICK, lines], capture_output=True, text=True, timeout=120)


def test_the_help_and_a_typo_import_no_command() -> None:
    told = quick("\n--help\n-h\n--version\nhelp\nlenn\nhelp lenn\n--json nonsense\n--timeout x")
    assert (told.stdout, told.stderr) == ("[]\n", "")


def test_a_command_with_commands_of_its_own_imports_none_of_them() -> None:
    told = quick("edge --help\nedge\nedge sned\nhelp pipeline\npipeline x")
    assert (told.stdout, told.stderr) == ("['shardq.cli.commands.edge', 'shardq.cli.commands.pipeline']\n", "")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("lenn", "shardq: there is no command 'lenn': did you mean len?"),
        ("help stat", "shardq: there is no command 'stat': did you mean stats?"),
        ("--json gatway-token x", "shardq: there is no command 'gatway-token': did you mean gateway-token?"),
        ("nonsense", "shardq: there is no command 'nonsense': shardq --help lists them"),
        ("edge sned x", "shardq edge: there is no command 'sned': did you mean send?"),
        ("pipeline x", "shardq pipeline: there is no command 'x': shardq pipeline --help lists them"),
        ("redis://me:secret@host", "shardq: there is no command 'redis://…@host': shardq --help lists them"),
        ("sta\x1bts", r"shardq: there is no command 'sta\x1bts': did you mean stats?"),
    ],
)
def test_a_typo_is_one_line_that_names_what_was_meant(cli: Command, words: str, told: str) -> None:
    ended = cli(*words.split(" "))
    assert (ended.code, ended.out, ended.err) == (2, "", f"{told}\n")


def test_a_command_that_is_a_whole_text_is_cut_short(cli: Command) -> None:
    assert len(cli("x" * 60_000).err) < 120


@pytest.mark.parametrize("words", ["", "len", "edge", "edge send", "help"])
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


@pytest.mark.parametrize("name", ["edge", "gateway", "pipeline", "edge refused", "edge send", "pipeline archive"])
def test_the_help_of_what_needs_a_missing_extra_says_how_to_get_it(name: str) -> None:
    extra = EXTRAS[name.split(maxsplit=1)[0]]
    told = bare(*name.split(), "--help")
    assert (told.returncode, told.stderr) == (0, "")
    assert f"\nNeeds the extra {extra}: pip install 'shardq[{extra}]'\n" in told.stdout


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("edge status --spool x", "edge"),
        ("edge send jobs x -k t --spool x --gateway localhost:1", "edge"),
        ("edge run --spool x --gateway localhost:1", "edge"),
        ("gateway --listen 127.0.0.1:0 --insecure", "gateway"),
        ("pipeline plan --tenants 10", "spark"),
        ("plan --tenants 100 --noisy 1 --check", "plan"),
        ("plan --tenants 100 --noisy 1 --plot x.svg", "plan"),
    ],
)
def test_what_needs_a_missing_extra_says_so_in_one_line(words: str, extra: str) -> None:
    told = bare(*words.split())
    assert told.returncode == 2
    line = rf"shardq: .* needs? the extra {extra}: pip install 'shardq\[{extra}\]' \([\w.]+ is missing\)\n"
    assert re.fullmatch(line, told.stderr)


def test_the_summary_in_the_list_is_the_one_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """And so a command's own module has none."""
    for name, summary in COMMANDS.summaries.items():
        with pytest.raises(SystemExit):
            main([name, "--help"])
        assert f"\n\n{summary[0].upper()}{summary[1:]}.\n" in capsys.readouterr().out
