"""A cluster whose Python has no shardq, as docs/spark-cluster.md has it: it comes as a zip, and the URL from a file."""

from __future__ import annotations

import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardq import Client
from shardq.protocol import library, sources
from tests.spark.programs import DEFAULTS, ROOT, ended, running, standalone

pytestmark = [pytest.mark.timeout(600), pytest.mark.runs_in("test-all")]
APP = Path(__file__).parent / "shipped_app.py"


def zipped(folder: Path) -> Path:
    """The zip that a wheel of this checkout is."""
    path = folder / "shardq.zip"
    with zipfile.ZipFile(path, "w") as wheel:
        for each in (ROOT / "shardq").rglob("*"):
            if each.is_file() and "__pycache__" not in each.parts:
                wheel.write(each, each.relative_to(ROOT))
        wheel.writestr(f"shardq/protocol/{library.FILE}", library.encode(sources.read(ROOT / "lua")))
    return path


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """The environment of a Python that has what shardq needs, and no shardq."""
    venv.create(tmp_path / "bare", symlinks=True)
    python = tmp_path / "bare" / "bin" / "python"
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(tmp_path / "bare")}))
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib"))
    return {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python), "PYTHONPATH": ""}


@pytest.fixture
def master(home: Path, bare: dict[str, str], tmp_path: Path) -> Iterator[str]:
    """A standalone master with two workers, none of which has shardq."""
    lines = [line for line in DEFAULTS.splitlines() if "daemon" not in line]  # it would import shardq
    (home / "conf" / "spark-defaults.conf").write_text("\n".join([*lines, "spark.executor.memory 512m"]))
    with standalone(home, tmp_path, bare) as url:
        yield url


def submitted(home: Path, master: str, *words: str) -> list[str]:
    settings = ("--conf", "spark.ui.enabled=false", "--conf", "spark.log.level=OFF")
    return [str(home / "bin" / "spark-submit"), "--master", master, *settings, *words]


def test_batches_and_streams_run_where_shardq_is_a_zip(
    url: str, client: Client, queue_name: str, home: Path, bare: dict[str, str], master: str, tmp_path: Path
) -> None:
    queue = client.queue(queue_name, streams=4, journal=1000, create=True)
    queue.write_many([(b"x", f"t-{at % 5}") for at in range(50)])
    client.queue(f"{queue_name}.copy", create=True).read_many(1)
    (tmp_path / "url").write_text(f"{url}\n")
    words = [str(APP), f"file:{tmp_path / 'url'}", queue_name, str(tmp_path)]
    with running(
        submitted(home, master, "--py-files", str(zipped(tmp_path)), *words), home, tmp_path / "log", bare
    ) as process:
        assert ended(process, tmp_path / "log") == ["done", "50", "50", "50", "50"]
    assert (queue.len(), client.queue(f"{queue_name}.copy").len()) == (0, 50)


def test_executors_without_shardq_are_told_before_anything_is_read(
    url: str, home: Path, bare: dict[str, str], master: str, tmp_path: Path
) -> None:
    """The driver has it by its PYTHONPATH, which the executors do not get."""
    log = tmp_path / "log"
    with running(
        submitted(home, master, str(APP), url, "q", str(tmp_path)), home, log, bare | {"PYTHONPATH": str(ROOT)}
    ) as process:
        assert process.wait(400) == 1
    assert "cannot import shardq (No module named 'shardq')" in log.read_text()
    assert "ship it by --py-files shardq.zip" in log.read_text()
