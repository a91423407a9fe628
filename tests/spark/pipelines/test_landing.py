"""`shardq pipeline load --follow`: each file of a landing folder is loaded once, whatever is killed or lost."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from shardq import Client
from shardq.client import Queue
from tests.spark.conftest import SETTINGS
from tests.spark.pipelines.conftest import Shardq
from tests.spark.pipelines.test_load import csv, loaded, said
from tests.spark.programs import running
from tests.waiting import eventually

pytestmark = [pytest.mark.timeout(400), pytest.mark.runs_in("test-all")]


def command(url: str, *words: str) -> list[str]:
    """`shardq pipeline` as a program, with the settings of the session of the tests."""
    settings = [word for name, value in SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    return [sys.executable, "-m", "shardq.cli", "--url", url, "pipeline", *words, "--master", "local[2]", *settings]


def test_a_landing_folder_is_loaded_once_though_the_command_is_killed(
    shardq: Shardq, queue: Queue, url: str, home: Path, tmp_path: Path
) -> None:
    """Killed in the midst of its batches, as it looks every second; the next run takes what is left, and what came."""
    folder, seen, log = tmp_path / "in", tmp_path / "seen", tmp_path / "log"
    for at in range(8):
        csv(folder / f"{at}.csv", at * 500, at * 500 + 500)
    words = ["load", str(folder), queue.name, "--format", "csv", "--key", "tenant", "--follow"]
    words += ["--checkpoint", str(seen), "--option", "maxFilesPerTrigger=1"]
    with running(command(url, *words, "--every", "0.1"), home, log) as process:
        eventually(lambda: queue.stats().written > 1000 or process.poll() is not None, 200)
        assert process.poll() is None, log.read_text()
    assert len(list((seen / "commits").glob("[0-9]*"))) < 8
    csv(folder / "late.csv", 4000, 4100)
    report = shardq.report(*words)
    assert 100 <= report["rows"] <= 3100
    assert loaded(queue) == list(range(4100))
    assert shardq.report(*words)["rows"] == 0
    shutil.rmtree(seen)  # all files come again, in one batch, and are known
    assert shardq.report(*words[:-2])["rows"] == 4100
    assert queue.len() == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--follow",), "--follow needs --checkpoint"),
        (("--checkpoint", "x"), "--checkpoint needs --follow"),
        (("--every", "5"), "--every needs --follow"),
        (("--follow", "--checkpoint", "x", "--format", "table"), "a table of the catalog cannot be followed"),
        (("--follow", "--checkpoint", "x", "--format", "csv"), "that tell the columns: give their --schema"),
        (("--follow", "--checkpoint", "x", "--format", "csv", "--option", "Path=y"), "the option Path would"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    shardq: Shardq, queue: Queue, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    code, _, err = shardq("load", str(tmp_path), queue.name, "--key", "tenant", *words)
    assert (code, told in said(err)) == (2, True), err


def test_a_single_file_is_not_followed(shardq: Shardq, queue: Queue, tmp_path: Path) -> None:
    path = csv(tmp_path / "in" / "a.csv", 0, 10)
    code, _, err = shardq("load", str(path), queue.name, "--key", "tenant", "--follow", "--checkpoint", "x")
    assert (code, "name its folder" in said(err)) == (2, True), err


def test_a_checkpoint_is_of_one_folder_and_queue(shardq: Shardq, queue: Queue, client: Client, tmp_path: Path) -> None:
    """Files that another queue got would be passed over in silence."""
    other = client.queue(f"{queue.name}.other", streams=2)
    other.read_many(1)
    one, two = csv(tmp_path / "in" / "a.csv", 0, 10).parent, csv(tmp_path / "two" / "b.csv", 10, 20).parent
    words = ("--format", "csv", "--key", "tenant", "--follow", "--checkpoint", str(tmp_path / "seen"))
    shardq.report("load", str(one), queue.name, *words)
    for given in ((str(one), other.name), (str(two), queue.name), (str(one), queue.name, "--run-id", "mine")):
        code, _, err = shardq("load", *given, *words)
        assert (code, f"{tmp_path / 'seen'} follows " in said(err), "take another --checkpoint" in said(err)) == (
            2, True, True,
        ), err  # fmt: skip
    csv(one / "c.csv", 20, 30)
    assert shardq.report("load", f"file://{one}/", queue.name, *words)["rows"] == 10
    assert loaded(queue) == [*range(10), *range(20, 30)]


def test_a_bad_file_among_good_ones_is_mended_in_its_place_or_taken_away(
    shardq: Shardq, queue: Queue, tmp_path: Path
) -> None:
    """The batch that failed is replayed: its good rows are known, and a file that is gone is left out."""
    folder = tmp_path / "in"
    for at in range(4):
        csv(folder / f"{at}.csv", at * 100, at * 100 + 100, bad=150 if at == 1 else -1)
        os.utime(folder / f"{at}.csv", (1_000_000 + at, 1_000_000 + at))  # the order of the batches
    words = ["load", str(folder), queue.name, "--format", "csv", "--key", "tenant", "--follow"]
    words += ["--checkpoint", str(tmp_path / "seen"), "--option", "maxFilesPerTrigger=1"]
    code, _, err = shardq(*words)
    assert (code, "shard_key is null" in said(err)) == (1, True), err
    csv(folder / "1.csv", 100, 200)
    (folder / "2.csv").unlink()
    assert shardq.report(*words)["rows"] == 200
    assert loaded(queue) == [*range(200), *range(300, 400)]
