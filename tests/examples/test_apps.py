"""The applications of examples/apps, each as a reader runs it: by the commands of its README, one after the other.

All of a README's commands run in one shell, in the folder of the application. Only the two ports are others. As a
reader does, the test waits until what was started listens, and until what was stopped has ended. What a command prints
is what the README shows; `...` stands for anything.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.house.doc_blocks import blocks
from tests.house.test_examples import pattern
from tests.parts import APPS, APPS_BIN
from tests.servers import free_ports

pytestmark = [pytest.mark.once, pytest.mark.runs_in("test-all")]
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "apps"
NAMES = sorted(path.parent.name for path in FOLDER.glob("*/README.md"))
MARK = "--- command"
SETUP = """
trap 'kill -9 "${pids[@]}" 2>/dev/null' EXIT
listens() {
  for _ in $(seq 600); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return 0; fi
    sleep 0.05
  done
  echo "nothing listens on port $1" >&2
  exit 1
}
"""


class Command(NamedTuple):
    """What a reader types, and sees."""

    text: str
    shown: list[str]


def commands_of(page: Path) -> list[Command]:
    """The commands of a README in order, each with what it prints."""
    found: list[Command] = []
    for block in blocks(page):
        assert block.language == "console", f"{block}: a reader types it, so it is of the language console"
        for line in block.code.splitlines():
            if line.startswith("$ "):
                found.append(Command(line.removeprefix("$ "), []))
            else:
                found[-1].shown.append(line)
    return found


def script_of(commands: list[Command], ports: dict[str, str]) -> str:
    """All commands as one script, which says when each begins, and with what status those behind have ended.

    What these print is not what a reader looks for.
    """
    lines = ["set -m", SETUP]
    for number, command in enumerate(commands):
        text = re.sub("|".join(ports), lambda found: ports[found[0]], command.text)
        lines.append(f"printf '\\n%s\\n' '{MARK} {number}'")
        if text.endswith("&"):
            lines += [f"{text.removesuffix('&')} >>behind 2>&1 &", "pids+=($!)"]
            lines += [f"listens {port}" for port in ports.values() if port in text]
        else:
            lines.append(f"{text} || exit 1")
        if text.startswith("kill "):
            lines += [f"wait ${{pids[{int(each) - 1}]}}; ends+=($?)" for each in re.findall(r"%(\d+)", text)]
    lines += [f"printf '\\n%s\\n' '{MARK} end'", 'echo "${ends[@]}"']
    return "\n".join(lines)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NAMES)
def test_an_application_runs_as_its_readme_says(name: str, tmp_path: Path) -> None:
    APPS.need()
    place = shutil.copytree(FOLDER / name, tmp_path / name)
    commands = commands_of(place / "README.md")
    assert commands[0].text.startswith("pip install "), "a reader begins with nothing"
    ports = dict(zip(("6379", "8000"), map(str, free_ports(2)), strict=True))
    environment = os.environ | {
        "PATH": f"{APPS_BIN}{os.pathsep}{os.environ['PATH']}",
        "SHARDQ_URL": f"redis://127.0.0.1:{ports['6379']}",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_QUIET": "2",
    }
    told = run(script_of(commands, ports), place, environment)
    _, *parts, ends = re.split(rf"^{MARK} (?:\d+|end)\n", told.stdout, flags=re.MULTILINE)
    assert told.returncode == 0, told.stdout + told.stderr
    for command, printed in zip(commands, parts, strict=True):
        if command.shown:
            assert pattern(command.shown).fullmatch(printed.rstrip("\n") + "\n"), (command.text, printed, told.stderr)
    assert len(ends.split()) == sum(each.text.endswith("&") for each in commands), "the README ends what it began"
    assert set(ends.split()) <= {"0", "143"}, f"{ends}: each ends in order, or by SIGTERM\n{told.stderr}"


def run(script: str, place: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a script in a shell, which ends what it has left behind."""
    with (place / "stdout").open("w") as out, (place / "stderr").open("w") as err:
        shell = subprocess.Popen(["bash", "-c", script], cwd=place, env=environment, stdout=out, stderr=err)
        try:
            code = shell.wait(240)
        finally:
            shell.terminate()
            shell.wait(30)
    behind = place / "behind"
    errors = (place / "stderr").read_text() + (behind.read_text() if behind.exists() else "")
    return subprocess.CompletedProcess([], code, (place / "stdout").read_text(), errors)


def test_the_applications_are_there() -> None:
    assert NAMES == ["batch", "cron", "django", "fastapi", "flask", "two_queues"]


def test_a_readme_that_shows_something_else_is_found(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("# a\n```console\n$ one &\n$ two\nshown ...\n```\n\n```console\n$ three\n```\n")
    commands = commands_of(page)
    assert commands == [Command("one &", []), Command("two", ["shown ..."]), Command("three", [])]
    assert not pattern(commands[1].shown).fullmatch("other\n")
