"""The demo does its job on a part of its input, and says so when something went wrong."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from examples.demo.files import COPIES, Source, flooding, sources
from examples.demo.ledger import Ledger
from examples.demo.records import Records, Tail
from shardq import QueueStats
from tests.waiting import eventually

pytestmark = pytest.mark.runs_in("test-all")

ROOT = Path(__file__).resolve().parents[2]
PIPE = subprocess.PIPE


@contextlib.contextmanager
def demo(*words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "examples.demo", *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=PIPE, stderr=PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def children(pid: int) -> dict[int, str]:
    """The processes that *pid* started, and their command lines."""
    found = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(status.read_text().rpartition(")")[2].split()[1]) == pid:
                found[int(status.parent.name)] = (status.parent / "cmdline").read_text().replace("\0", " ")
    return found


@pytest.mark.timeout(300)
def test_a_short_run_accounts_for_every_file() -> None:
    with demo("--files", "150", "--workers", "3") as process:
        told, errors = process.communicate(timeout=250)
    assert (process.returncode, errors) == (0, "")
    files = sources(150)
    noisy = flooding(files)
    total = len(files) + (COPIES - 1) * sum(file.tenant == noisy for file in files)
    assert re.search(rf"^PASSED: 150 files, {total:,} jobs, none lost, none done twice, in \d+ s$", told, re.MULTILINE)
    rows = re.findall(r"^ (.+?)  +([\d,]+) +([\d,]+) +([\d,]+|-) +[\d.]+ m?s +[\d.]+ m?s", told, re.MULTILINE)
    *parts, everything = [
        (name, *(int(cell.replace(",", "").replace("-", "0")) for cell in cells)) for name, *cells in rows
    ]
    assert everything[1] == everything[2] == total
    assert [sum(part[column] for part in parts) for column in (1, 2, 3)] == list(everything[1:])
    assert everything[3] >= 1  # the killed worker held a lease, and it was delivered again
    assert parts[0][0].endswith(" (floods)")
    assert parts[0][1] == total - sum(file.tenant != noisy for file in files)
    assert "SIGKILL to worker-" in told
    assert "autoscaler   length" in told
    assert "\x1b" not in told
    assert [line for line in told.splitlines() if len(line) > 80] == []


@pytest.mark.timeout(300)
def test_a_process_that_dies_fails_the_demo() -> None:
    with demo("--files", "300") as process:
        scaler = eventually(lambda: [pid for pid, line in children(process.pid).items() if "autoscaler.py" in line], 60)
        os.kill(scaler[0], signal.SIGKILL)
        told, errors = process.communicate(timeout=200)
    assert (process.returncode, errors) == (1, "")
    assert "autoscaler ended" in told
    assert "FAILED: " in told


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_demo_and_all_its_processes(number: signal.Signals) -> None:
    with demo() as process:
        eventually(lambda: len(children(process.pid)) >= 7, 60, what="server, API server, autoscaler and 4 workers")
        started = children(process.pid)
        process.send_signal(number)
        _, errors = process.communicate(timeout=200)
    assert process.returncode == 128 + number
    assert "Traceback" not in errors
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), what="all of them gone")


def test_the_input_is_the_standard_library_and_what_is_installed() -> None:
    files = sources()
    counts = Counter(file.tenant for file in files)
    assert {"json", "asyncio", "pip"} <= set(counts)
    assert not any("__pycache__" in file.path for file in files)
    assert len({file.path for file in files}) == len(files)
    assert files[:50] == sources(50)
    noisy = flooding(files)
    assert 0.2 < COPIES * counts[noisy] / len(files) < 5
    assert len({file.tenant for file in files[:50]}) > 5  # the tenants are mixed


FILES = [Source("quiet", "/q/1.py", 1), Source("quiet", "/q/2.py", 1), Source("noisy", "/n.py", 1)]
TOTAL = 2 + COPIES
STATS = QueueStats("jobs", 0.0, 0, 0, 0, 0, None, (0,), written=TOTAL, acked=TOTAL)


def complete() -> list[tuple[str, dict[str, Any]]]:
    """The events of a run in which all went well."""
    due = [(file, copy) for file in FILES for copy in range(COPIES if file.tenant == "noisy" else 1)]
    events: list[tuple[str, dict[str, Any]]] = []
    for n, (file, copy) in enumerate(due):
        events += [
            ("worker", {"event": "took", "id": str(n), "count": 1, "pickup": 0.1, "at": 1.0}),
            ("api", {"event": "wrote", "id": str(n), "tenant": file.tenant, "path": file.path, "copy": copy}),
            ("worker", {"event": "parsed", "id": str(n), "result": "parsed"}),
            ("worker", {"event": "acked", "id": str(n)}),
        ]
    return events


def problems(
    events: list[tuple[str, dict[str, Any]]], now: QueueStats = STATS, after: list[Source] = FILES
) -> list[str]:
    ledger = Ledger()
    for process, event in events:
        ledger.enter(process, event)
    return ledger.problems(FILES, after, "noisy", "killed", now)


def test_books_that_agree_show_no_problem() -> None:
    assert problems(complete()) == []


def test_the_books_find_what_is_lost_or_doubled() -> None:
    good = complete()
    again = ("worker", {"event": "acked", "id": "0"})
    extra = ("api", {"event": "wrote", "id": "x", "tenant": "quiet", "path": "/q/1.py", "copy": 0})
    assert problems(good[:-1]) == ["1 jobs were not done"]
    assert problems([*good, again]) == ["1 jobs were acked twice"]
    assert problems([*good, extra]) == ["a job was written twice"]
    assert problems(good, replace(STATS, acked=TOTAL - 1)) == [
        f"the server counted {TOTAL - 1} acks of {TOTAL} messages"
    ]
    assert "something is left" in problems(good, replace(STATS, in_flight=1))[0]
    assert problems(good, after=FILES[1:]) == ["the files on disk changed while it ran"]


def test_an_ack_that_the_killed_worker_could_not_write_down_is_believed_once() -> None:
    good = complete()
    by_killed = [
        ("killed", event) if event["id"] in ("0", "1") and name == "worker" else (name, event) for name, event in good
    ]
    one = [each for each in by_killed if each[1] != {"event": "acked", "id": "0"}]
    two = [each for each in one if each[1] != {"event": "acked", "id": "1"}]
    assert problems(one) == []
    assert "more than one ack is in doubt" in problems(two)[0]


def test_records_are_read_as_they_grow(tmp_path: Path) -> None:
    path = tmp_path / "records"
    tail = Tail(path)
    assert tail.news() == []
    records = Records(str(path))
    records.note("took", id="1")
    with path.open("ab") as file:
        file.write(b'{"event": "ack')
    assert [event["event"] for event in tail.news()] == ["took"]
    with path.open("ab") as file:
        file.write(b'ed"}\n')
    assert tail.news() == [{"event": "acked"}]
    tail.close()
