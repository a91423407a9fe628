"""What all commands have in common: help, options, errors in one line, exit codes."""

from __future__ import annotations

import io
import pkgutil
import re
import shlex
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

import pytest

import shardq
from shardq import Queue
from shardq.cli import commands
from shardq.cli.commands import COMMANDS
from shardq.cli.exits import CLOSED_PIPE
from shardq.cli.program import main, parser
from shardq.embedded import EmbeddedServer
from tests.cli.conftest import Command
from tests.parts import LINUX
from tests.servers import Server, ServerKind, free_ports

NAMES = [*COMMANDS.summaries]


@pytest.mark.parametrize("name", NAMES)
def test_every_command_explains_itself_in_80_columns(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    told = capsys.readouterr().out
    assert ended.value.code == 0
    assert "examples:\n  shardq" in told or f"shardq {name}" in told.partition("examples:")[2]
    assert "exit codes:" in told
    summary = COMMANDS.summaries[name]
    assert f"\n\n{summary[0].upper()}{summary[1:]}.\n" in told
    assert [line for line in told.splitlines() if len(line) > 80] == []


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("name", NAMES)
def test_the_examples_in_the_help_parse(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([name, "--help"])
    examples = capsys.readouterr().out.partition("examples:\n")[2].partition("\n\nexit codes")[0]
    lines = re.findall(rf"shardq ({name}\b.*)", examples)
    assert lines
    for line in lines:
        words = shlex.split(line, comments=True)
        parser().parse_args(takewhile(lambda word: not re.match(r"[|<>&#]", word), words))


def test_every_module_of_the_folder_is_a_command() -> None:
    assert [name for name in NAMES if not callable(COMMANDS.load(name).add_to)] == []
    assert sorted(name.replace("-", "_") for name in NAMES) == sorted(
        each.name for each in pkgutil.iter_modules(commands.__path__)
    )


@pytest.mark.parametrize("words", ["stats jobs", "--url redis://nowhere --json stats jobs", "--timeout=1 stats jobs"])
def test_a_command_loads_no_other_command(words: str) -> None:
    """An autoscaler calls one often, and all of them take longer than the call."""
    program = (
        "import contextlib, sys\n"
        "from shardq.cli.program import main\n"
        "with contextlib.suppress(SystemExit): main([*sys.argv[1:], '--help'])\n"
        "print(sorted(name for name in sys.modules if name.startswith('shardq.cli.commands.')))"
    )
    told = subprocess.run([sys.executable, "-c", program, *words.split()], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines()[-1] == "['shardq.cli.commands.stats']"


def test_the_top_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    assert [name for name in NAMES if not re.search(rf"^    {name}\s", told, re.MULTILINE)] == []


@pytest.mark.runs_in("test-all")
def test_version_and_the_installed_script() -> None:
    script = Path(sys.executable).with_name("shardq")
    told = subprocess.run([str(script), "--version"], capture_output=True, text=True)
    assert (told.returncode, told.stdout) == (0, f"shardq {shardq.__version__}\n")


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense",),
        ("stats",),
        ("write", "jobs", "hello"),  # no shard key
        ("write", "jobs", "--lines", "payload", "-t", "t"),
        ("write", "jobs", "{", "--as", "json", "-t", "t"),
        ("write", "jobs", "[" * 100_000, "--as", "json", "-t", "t"),
        ("write", "jobs", "x", "-t", "t", "--header", "no-equals"),
        ("write", "jobs", "x", "-t", "t", "--delay=-1"),
        ("write", "bad{name", "x", "-t", "t"),
        ("read", "jobs", "--limit", "0"),
        ("stats", "jobs", "--field", "len", "--url", "nonsense"),
        ("stats", "jobs", "--field", "len", "--url", "redis://u:secret@host:port"),
        ("stats", "jobs", "--field", "len", "--timeout", "x"),
        ("stats", "jobs", "--field", "len", "--url", "redis://u:secret@host?colour=red"),
        ("configure", "jobs", "streams=many"),
        ("write", "jobs", "x", "-t", "t", "--delay", "soon"),
        ("server", "doctor", "--durability", "much"),
    ],
    ids=repr,
)
def test_a_wrong_command_line_is_code_2_and_says_why(cli: Command, words: tuple[str, ...]) -> None:
    told = cli(*words)
    assert told.code == 2
    assert told.out == ""
    assert re.search(r"^shardq.*: ", told.err, re.MULTILINE)
    assert "Traceback" not in told.err
    assert "secret" not in told.err


def test_without_a_command_it_prints_its_help_as_an_error(cli: Command) -> None:
    told = cli()
    assert (told.code, told.out) == (2, "")
    assert told.err == cli("--help").out


@pytest.mark.parametrize("credentials", ["", ":wrong@", "nobody:wrong@"])
def test_a_wrong_password_is_one_line_and_not_a_matter_of_rights(credentials: str) -> None:
    with EmbeddedServer(port=0, options={"requirepass": "right"}) as server:
        told = Command(f"redis://{credentials}127.0.0.1:{server.port}")("stats", "jobs", "--field", "len")
    assert told.code == 1
    assert re.fullmatch(r"shardq: Redis does not know this user: .*\n", told.err)
    assert "wrong@" not in told.err


@pytest.mark.parametrize(
    "words",
    [
        ("write", "jobs", "x", "-t", "t"),
        ("read", "jobs"),
        ("stats", "jobs", "--field", "len"),
        ("stats", "jobs", "--json"),
        (
            "server",
            "doctor",
        ),
    ],
    ids=lambda words: words[0],
)
def test_no_server_is_one_line_and_code_1(cli: Command, words: tuple[str, ...]) -> None:
    url = f"redis://user:secret@127.0.0.1:{free_ports(1)[0]}"
    told = cli(*words, "--url", url, "--timeout", "0.3")
    assert (told.code, told.out) == (1, "")
    assert re.fullmatch(r"shardq: no Redis at redis://user:\*\*\*@127\S+; --url names another\n", told.err)


def test_the_options_of_all_stand_before_or_after_the_command(cli: Command, queue: Queue) -> None:
    url, cli.url = cli.url, "redis://127.0.0.1:1"
    before, after = (
        cli("--json", "--url", url, "stats", "jobs", "--field", "len"),
        cli("stats", "jobs", "--field", "len", "--json", "--url", url),
    )
    assert before.objects == after.objects == [{"queue": "jobs", "len": 0}]
    cli.url = url
    assert cli("stats", "jobs", "--field", "len").out == "0\n"  # the environment's


def test_a_server_that_would_lose_messages_is_refused_in_one_line(kind: ServerKind | None) -> None:
    with Server(kind, options={"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}) as server:
        told = Command(server.url)("write", "jobs", "x", "-t", "t")
    assert told.code == 1
    assert re.fullmatch(r"shardq: .*noeviction\n", told.err)


@pytest.mark.runs_in("test-all")
def test_a_full_disk_is_one_line_and_code_1(cli: Command, queue: Queue) -> None:
    LINUX.need()  # /dev/full
    with (
        Path("/dev/full").open("wb") as full,
        cli.start("stats", "jobs", stdout=full, stderr=subprocess.PIPE) as process,
    ):
        told = process.communicate(timeout=150)[1].decode()
    assert process.returncode == 1
    assert re.fullmatch(r"shardq: .*No space left.*\n", told)


@pytest.mark.runs_in("test-all")
def test_it_works_where_only_ascii_can_be_shown(cli: Command, queue: Queue) -> None:
    queue.write("日本".encode(), shard_key="é")
    cli.environment = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    told = cli("read", "jobs")
    assert told.out.split("\t", 1)[1] == "\\xe9\t1\t\\u65e5\\u672c\n"
    assert cli("stats", "jobs").code == 0


class _Closed(io.StringIO):
    """A stdout that is no file of the system, as in a notebook, and whose reader is gone."""

    def write(self, _: str) -> int:
        raise BrokenPipeError


def test_a_stdout_that_is_no_file_hides_no_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", _Closed())
    assert main(["server", "acl", "producer", "jobs"]) == CLOSED_PIPE
