"""Each name that README.md, CONTRIBUTING.md, docs/ and help texts show is there; what is not ours is listed."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

import pytest

from tests.house.names import others
from tests.house.names.judge import Judge
from tests.house.names.pages import help_of, page_of, pages

pytestmark = pytest.mark.runs_in("test-all")

WRONG = {
    "a class": ("`TimeLimits`", "TimeLimits cannot be imported"),
    "a class in a sentence": ("It raises a TimeLimits.", "there is no TimeLimits"),
    "a class that users cannot import from there": ("`EdgeSettings`", "EdgeSettings cannot be imported"),
    "a member": ("`Queue.lenght`", "Queue has no lenght"),
    "a member of what a call returns": ("`(await job.status()).shardkey`", "MessageStatus has no shardkey"),
    "a member of a variable": ("`client.queue(tasks).purgee()`", "Queue has no purgee"),
    "a parameter": ('`jobs.write(1, shardkey="a")`', "Queue.write does not take shardkey"),
    "a parameter of a decorator": ("`@tasks.task(delay=3)`", "Tasks.task does not take delay"),
    "a field": ("`Limits(max_inflight=3)`", "Limits does not take max_inflight"),
    "a setting": ("`max_inflight`", "nothing is called max_inflight"),
    "a setting and its value": ('`fairr="time"`', "nothing is called fairr"),
    "a setting in a sentence": ("Set max_inflight.", "there is no max_inflight"),
    "a setting on a command line": ("`shardq configure QUEUE windows=1`", "configure sets no windows"),
    "a module": ("`shardq.sparks`", "shardq.sparks"),
    "a name in a sentence": ("Raise shardq.Nackk(3).", "there is no shardq.Nackk"),
    "an import": ("```python\nfrom shardq.tasks import Taskz\n```", "shardq.tasks has no Taskz"),
    "a handler": ("`shardq.django:taskz`", "shardq.django has no taskz"),
    "an option": ("`shardq stats` has `--wach`", "no command that is named there has --wach"),
    "an option in a sentence": ("`shardq stats` with --wach", "no command that is named there has --wach"),
    "an option of another command": (
        "`shardq topics list` has `--watch`",
        "no command that is named there has --watch",
    ),
    "an option on a command line": ("`shardq stats --wach`", "there is no --wach"),
    "an option that is typed": ("```console\n$ shardq stats jobs --wach\n```", "there is no --wach"),
    "an option of a command in a pipe": ("`zcat x | shardq write jobs --line`", "there is no --line"),
    "a command": ("`shardq statz`", "there is no command 'statz'"),
    "a target": ("`make tset`", "make has no tset"),
    "a target that is typed": ("```bash\nmake tset  # all\n```", "make has no tset"),
    "a variable of make": ("`make test SPRAK=no`", "make has no SPRAK"),
    "a benchmark": ("`python -m benchmarks throughput`", "no benchmark is called throughput"),
    "a program": ("`python -m benchmarks.floods`", "there is no module benchmarks.floods"),
    "an extra": ("`pip install 'shardq[embeded]'`", "no extra embeded"),
    "a variable of the environment": ("`SHARDQ_URI`", "nothing reads SHARDQ_URI"),
    "such a variable in a block": ("```ini\nEnvironment=SHARDQ_URI=redis://a\n```", "nothing reads SHARDQ_URI"),
    "a file": ("`lua/stream.lua`", "no file lua/stream.lua"),
    "a file in a block": ("```bash\npython examples/pipelines.py\n```", "no file examples/pipelines.py"),
    "a test": ("`tests/house/test_names.py::test_it`", "no such test"),
    "a metric": ("`messaging.process.durations`", "nothing is called"),
    "a line of the log": ("`queue … was gone and was made again`", "nothing says 'was gone and was made again'"),
    "a key": ("`shardq:{name}:leasez`", "no key ends in :leasez"),
    "a command of Redis": ("`XREADGRUOP`", "nothing is called XREADGRUOP"),
    "a function of Python": ("`asyncio.call_later`", "Python's asyncio has no call_later"),
}
WRONG_WITHIN = {
    "a function of lua/": ("`Streams.apend()`", "Streams of lua/ has no apend"),
    "a function": ("`spel()`", "no function is called spel"),
    "a method": ("`Keeper.kep()`", "Keeper has no kep"),
    "a mark of tests": ('`runs_inn("test")`', "no function is called runs_inn"),
    "a name of the tests": ("`tests.selection.SOAKS`", "nothing is called"),
}
"""In pages for those who work on shardq."""

RIGHT = """`TimeLimit` and ProcessDied; `Queue.len`, `(await job.status()).shard_key`, `client.queue(tasks).purge()`,
`jobs.write(1, shard_key="a")`, `@tasks.task(retries=3)`, `Limits(max_in_flight=3)`, `max_in_flight`, `fair="time"`,
`shardq configure QUEUE window=1`, `shardq.spark`, shardq.Nack(3), `shardq.django:tasks`, `shardq stats` has `--watch`,
`zcat x | shardq write jobs --lines`, `shardq`, `make test SPARK=no`, `python -m benchmarks reads`,
`python -m benchmarks.flood`, `pip install 'shardq[embedded]'`, `SHARDQ_URL`, `lua/streams.lua`, `ops/write/write.py`,
`tests/house/test_names.py::test_what_is_there_is_not_reported`, `messaging.process.duration`, `XREADGROUP … BLOCK`,
`queue … was gone and was created again`, `shardq:{name}:bulk-offsets`, `asyncio.run`, `appendfsync`, `+client|setinfo`
```console
$ shardq stats jobs --watch | head
```
"""


def wrong(folder: Path, text: str, name: str = "docs/a.md") -> list[str]:
    """What is wrong in a page with this text."""
    path = folder / "a.md"
    path.write_text(text)
    return [*Judge(page_of(path, name)).wrong()]


@pytest.mark.parametrize("kind", WRONG)
def test_a_name_that_is_not_there_is_found(tmp_path: Path, kind: str) -> None:
    text, complaint = WRONG[kind]
    assert complaint in "\n".join(wrong(tmp_path, f"# A page\n\n{text}\n"))


@pytest.mark.parametrize("kind", WRONG_WITHIN)
def test_such_a_name_is_found_in_pages_about_the_code(tmp_path: Path, kind: str) -> None:
    text, complaint = WRONG_WITHIN[kind]
    assert complaint in "\n".join(wrong(tmp_path, f"# A page\n\n{text}\n", "docs/internals/design.md"))


def test_what_is_there_is_not_reported(tmp_path: Path) -> None:
    assert wrong(tmp_path, RIGHT) == []


def test_what_a_page_defines_is_not_reported(tmp_path: Path) -> None:
    assert (
        wrong(tmp_path, "`thumbnail.call(size=3)`\n```python\n# app/a.py\ndef thumbnail(size): ...\n```\n`app/a.py`")
        == []
    )


def test_the_other_librarys_column_is_not_read(tmp_path: Path) -> None:
    table = "| Celery | shardq |\n|---|---|\n| `app.conf.acks_latee` | `retrys` |\n"
    (found,) = wrong(tmp_path, table, "docs/coming_from/celery.md")
    assert "retrys" in found


def test_the_help_of_a_command_is_read() -> None:
    parser = ArgumentParser(
        prog="shardq stats", description="It has --wach, and `Queue.statz`.", epilog="examples:\n  shardq statz jobs"
    )
    parser.add_argument("--watch", help="see docs/stats.md")
    found = "\n".join(Judge(help_of(parser)).wrong())
    for complaint in ("has --wach", "Queue has no statz", "there is no command 'statz'", "no file docs/stats.md"):
        assert complaint in found


def test_each_name_is_there_and_each_of_others_is_shown() -> None:
    found: list[str] = []
    met: set[str] = set()
    for page in pages():
        judge = Judge(page)
        found += judge.wrong()
        met |= judge.met
    assert not found, "\n".join(found)
    assert others.entries() - met == set(), "no page shows these any more"


def test_what_others_define_is_no_complaint(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("BullMQ\n")
    judge = Judge(page_of(path, "docs/a.md"))
    assert (list(judge.wrong()), judge.met) == ([], {"BullMQ"})
