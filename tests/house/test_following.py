"""A page is followed as a reader does, and what is wrong in it is found."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.house import following
from tests.house.doc_blocks import ROOT

pytestmark = pytest.mark.runs_in("test-all")

TASKS = """# app/tasks.py
from shardq.tasks import Tasks

tasks = Tasks("jobs", result_ttl=60)


@tasks.task
def double(number: int) -> int:
    return 2 * number
"""
GOOD = f"""# A page
<!-- follow -->
```python
{TASKS}```

<!-- terminal: worker -->
```console
$ shardq worker app.tasks:tasks
shardq: ... worker ..., version ..., queue 'jobs' at redis://localhost:6379, ...
```

```python
from app.tasks import double, tasks
from shardq import AsyncClient

async with AsyncClient.from_url("redis://localhost:6379") as client:
    job = await client.queue(tasks).write(double.call(4), shard_key="t")
    assert await job.result(timeout=60) == 8
```

```console
$ N=3
$ echo "$N files"; ls app
3 files
...
tasks.py
```

<!-- terminal: worker -->
```console
^C
...
shardq: ... ended after ...: 1 done, 0 failed, 0 given back
```
"""
UNIT = """# /etc/systemd/system/a.service
[Service]
WorkingDirectory=/srv/reports
ExecStart=/srv/reports/.venv/bin/shardq worker app.tasks:tasks --grace 25
TimeoutStopSec={seconds}
"""
DEPLOYMENT = """# a.yaml
kind: Deployment
spec:
  selector: {{matchLabels: {{app: a}}}}
  template:
    metadata: {{labels: {{app: {label}}}}}
    spec:
      terminationGracePeriodSeconds: {seconds}
      containers:
        - command: [shardq, worker, "app.tasks:tasks", --alive-file, /tmp/alive]
          livenessProbe: {{exec: {{command: [test, -e, {probed}]}}}}
"""


ELSEWHERE = """#!/bin/sh
echo "redis://elsewhere"
if [ "$1" = embedded ]; then exec sleep 100; fi
"""
"""Stands for the `shardq` of another environment."""


def told(page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """What a run of *page* says."""
    command = [sys.executable, "-W", "error", "-m", "tests.house.doc_blocks", *options, str(page)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150)


def followed(folder: Path, *blocks: tuple[str, str], options: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """What a run of a page with these blocks says, each a language and a text."""
    page = folder / "page.md"
    page.write_text("<!-- follow -->\n" + "\n\n".join(f"```{language}\n{text}```\n" for language, text in blocks))
    return told(page, *options)


def test_a_good_page_is_followed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(GOOD)
    ended = told(page)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("language", "text", "complaint"),
    [
        ("console", "$ false\n", "it ended with 1"),
        ("console", "$ echo one\ntwo\n", "it showed\none"),
        ("console", "one\n", "begins with a command"),
        ("console", "$ pip install no-such-package-as-this\n", "No matching distribution found"),
        ("console", "$ pip install '../shardq[no-such-extra]'\n", "does not provide the extra"),
        ("python", "assert 1 == 2\n", "AssertionError"),
        ("lua", "return 1\n", "nothing says what a reader does with it"),
        ("dockerfile", "# Dockerfile\nFROM x\nCOPY nowhere .\n", "nowhere"),
        ("dockerfile", "# Dockerfile\nFROM x\nRUN make\n", "nothing tries RUN make"),
        ("yaml", "# a.yaml\nkind: Secret\n", "Secret"),
    ],
    ids=str,
)
def test_what_is_wrong_in_a_page_is_found(tmp_path: Path, language: str, text: str, complaint: str) -> None:
    ended = followed(tmp_path, (language, text))
    assert ended.returncode != 0
    assert complaint in ended.stderr
    assert "page.md:3" in ended.stderr


def test_what_goes_on_in_a_terminal_must_go_on(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- follow -->\n<!-- terminal: b -->\n```console\n$ echo one\ntwo\n```\n")
    assert "it has ended" in told(page).stderr


def test_another_environment_has_the_commands_and_needs_no_check_of_its_installs(tmp_path: Path) -> None:
    shardq = tmp_path / "env" / "bin" / "shardq"
    shardq.parent.mkdir(parents=True)
    shardq.write_text(ELSEWHERE)
    shardq.chmod(0o755)
    options = ("--environment", str(tmp_path / "env"))
    file, typed = ("python", TASKS), ("console", "$ pip install no-such-package-as-this\n$ shardq\nredis://elsewhere\n")
    ended = followed(tmp_path, file, typed, options=options)
    assert ended.returncode == 0, ended.stderr
    assert "only files are written" in followed(tmp_path, ("python", "1 + 1\n"), options=options).stderr
    assert "not found" in followed(tmp_path, ("console", "$ lint-imports\n"), options=options).stderr


@pytest.mark.parametrize(("seconds", "is_good"), [(30, True), (29, False), (40, False)])
def test_who_stops_a_worker_waits_five_seconds_longer_than_its_grace(
    tmp_path: Path, seconds: int, is_good: bool
) -> None:
    unit = followed(tmp_path, ("python", TASKS), ("ini", UNIT.format(seconds=seconds)))
    assert (unit.returncode == 0) == is_good, unit.stderr
    manifest = DEPLOYMENT.format(seconds=seconds, label="a", probed=following.ALIVE)
    deployed = followed(tmp_path, ("python", TASKS), ("yaml", manifest))
    assert (deployed.returncode == 0) == is_good, deployed.stderr


def test_a_selector_that_selects_nothing_is_found(tmp_path: Path) -> None:
    manifest = DEPLOYMENT.format(seconds=30, label="b", probed=following.ALIVE)
    assert followed(tmp_path, ("python", TASKS), ("yaml", manifest)).returncode != 0


def test_steps_are_commands_with_what_they_show() -> None:
    text = "$ a \\\n  --b\none\n\ntwo\n^C\n$ c\n"
    assert following.steps(text) == [("a --b", ["one", "", "two"]), ("^C", []), ("c", [])]
