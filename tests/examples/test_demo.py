"""The demo does its job on a part of its input, and says so when something went wrong."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace

from examples.demo.figures import short
from examples.demo.files import COPIES, Source, flooding, sources
from examples.demo.input import HANDLING, Input
from examples.demo.ledger import Ledger
from examples.demo.limit import Limit
from examples.demo.plan import FLOOD, LONGEST, SHORTEST, Plan, plan
from examples.demo.producer import ApiServer
from examples.demo.records import Records, Tail
from examples.demo.screens import COMMANDS
from examples.demo.speed import WINDOW, Speed
from examples.demo.waits import TIMES, Waits
from shardq import Limits, Message, Queue, QueueStats
from tests.waiting import eventually

pytestmark = pytest.mark.runs_in("test-all")

ROOT = Path(__file__).resolve().parents[2]
PIPE = subprocess.PIPE


@contextlib.contextmanager
def demo(*words: str, stdin: int | None = None) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "examples.demo", *words]
    with subprocess.Popen(command, cwd=ROOT, stdin=stdin, stdout=PIPE, stderr=PIPE, text=True) as process:
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
def test_a_short_run_shows_that_the_flood_delays_nobody_else() -> None:
    with demo("--files", "150", "--workers", "3") as process:
        told, errors = process.communicate(timeout=250)
    assert (process.returncode, errors) == (0, ""), told
    assert "SIGKILL to worker-" in told
    assert "\x1b" not in told
    assert [line for line in told.splitlines() if len(line.rstrip()) > 80] == []
    run, *screens = told.partition("\nPASSED")[0].split("\n$ shardq ")
    assert len(run.splitlines()) <= 40
    assert [each.partition("\n")[0] for each in screens] == [*COMMANDS]
    assert [each for each in screens if len(each.splitlines()) > 30] == []
    assert re.search(r"^backlog +[\d,]+ \(", screens[0], re.MULTILINE)
    assert screens[1].splitlines()[2].startswith(flooding(sources(150))[:8])
    assert len(re.findall(r"^\S+ +jobs +\d/1", screens[2], re.MULTILINE)) == 3
    jobs = number(
        r"^PASSED: the flood delayed nobody else\. ([\d,]+) jobs, each done once, in \d+ s$", told.splitlines()[-1]
    )
    others = number(r"^files +([\d,]+) of the others' [\d,]+ files were taken", told)
    rows = re.findall(r"^ (\S.*?)  +([\d,]+) +[\d.]+ m?s +[\d.]+ m?s", told, re.MULTILINE)
    flood, everybody, *parts = [(name, int(count.replace(",", ""))) for name, count in rows]
    assert flood == (f"{short(flooding(sources(150)))} (floods)", jobs - others)
    assert everybody[1] == sum(count for _, count in parts) == others


def number(pattern: str, text: str) -> int:
    found = re.search(pattern, text, re.MULTILINE)
    assert found, text
    return int(found[1].replace(",", ""))


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


@pytest.mark.timeout(300)
def test_the_page_of_the_demo_stays_open_until_it_is_interrupted() -> None:
    terminal, stdin = os.openpty()
    with demo("--files", "150", "--workers", "2", "--dashboard", stdin=stdin) as process:
        assert process.stdout
        opened = next(line for line in process.stdout if "open http://" in line)
        address = opened.split()[-1]
        assert overview(address)["queues"][0]["name"] == "jobs"
        next(line for line in process.stdout if "still open" in line)
        assert overview(address)["figures"]["waiting"] == 0
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    os.close(terminal)
    os.close(stdin)
    assert (process.returncode, errors) == (0, "")
    with pytest.raises(ConnectionRefusedError):
        overview(address)


def overview(address: str) -> dict[str, Any]:
    """What the Overview shows."""
    site = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    site.request("GET", "/scene/overview")
    with contextlib.closing(site), site.getresponse() as answer:
        found: dict[str, Any] = json.load(answer)
    return found


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


GIVEN = [("/q/1.py", 0), ("/q/2.py", 0), ("/n.py", 0), ("/n.py", 1)]
FILES = [Source("quiet", "/q/1.py", 1), Source("quiet", "/q/2.py", 1), Source("noisy", "/n.py", 1)]
TOTAL = len(GIVEN)
STATS = QueueStats("jobs", 0.0, 0, 0, 0, 0, None, (0,), written=TOTAL, acked=TOTAL)


def complete() -> list[tuple[str, dict[str, Any]]]:
    """The events of a run in which all went well."""
    events: list[tuple[str, dict[str, Any]]] = []
    for n, (path, copy) in enumerate(GIVEN):
        tenant = "noisy" if path == "/n.py" else "quiet"
        events += [
            ("worker", {"event": "took", "id": str(n), "tenant": tenant, "count": 1, "pickup": 0.1, "at": 1.0}),
            ("api", {"event": "wrote", "id": str(n), "tenant": tenant, "path": path, "copy": copy}),
            ("worker", {"event": "parsed", "id": str(n), "work": 1}),
            ("worker", {"event": "acked", "id": str(n)}),
        ]
    return events


def problems(
    events: list[tuple[str, dict[str, Any]]], now: QueueStats = STATS, after: list[Source] = FILES
) -> list[str]:
    ledger = Ledger()
    for process, event in events:
        ledger.enter(process, event)
    return ledger.problems(set(GIVEN), FILES, after, "killed", now)


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
    fewer = replace(STATS, written=TOTAL - 1, acked=TOTAL - 1)
    assert problems(good, fewer) == [f"the server counted {TOTAL - 1} acks of {TOTAL - 1} messages"]
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


def files(**counts: int) -> list[Source]:
    """So many files of each tenant."""
    return [Source(tenant, f"/{tenant}/{n}.py", 1000) for tenant, count in counts.items() for n in range(count)]


def given(monkeypatch: pytest.MonkeyPatch, found: list[Source]) -> Input:
    monkeypatch.setattr("examples.demo.input.sources", lambda limit: found)
    return Input(None)


def test_a_slow_machine_comes_to_a_file_of_each_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = given(monkeypatch, files(large=100, small=5, single=1, noisy=2))
    assert mine.noisy != "large"
    tenants = {file.tenant for file in mine.files} - {mine.noisy}
    assert {file.tenant for file in mine.others[: len(tenants)]} == tenants
    assert sorted(map(str, mine.others)) == sorted(str(file) for file in mine.files if file.tenant != mine.noisy)


def test_what_is_due_is_what_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = given(monkeypatch, files(large=300, noisy=2))
    assert mine.noisy == "noisy"
    flood = {("/noisy/0.py", 0), ("/noisy/1.py", 0), ("/noisy/0.py", 1)}
    assert mine.due(3, 2) == flood | {(file.path, 0) for file in mine.others[:2]}


@pytest.mark.parametrize("speed", [1e3, 1e5, 1e7, 1e9])
def test_the_others_get_at_most_half_of_what_the_workers_can_do(monkeypatch: pytest.MonkeyPatch, speed: float) -> None:
    mine = given(monkeypatch, files(large=3000, noisy=20))
    planned = plan(mine, speed, 100.0)
    assert SHORTEST <= planned.seconds <= LONGEST
    assert planned.others <= len(mine.others)
    assert planned.others * (1000 + HANDLING) <= 0.5 * speed * planned.seconds
    assert planned.share <= 0.5


def test_the_speed_is_that_of_busy_workers(tmp_path: Path) -> None:
    records = [Records(str(tmp_path / name)) for name in ("1", "2")]
    tails = [Tail(tmp_path / name) for name in ("1", "2")]
    speed = Speed(tails)

    def after(now: float, *done: tuple[int, float, int], busy: bool = True) -> float:
        for worker, at, work in done:
            records[worker].note("parsed", id="x", at=at, work=work)
        speed.look(now, busy=busy)
        return speed.work

    assert after(9.0, busy=False) == 0
    records[0].note("ready")
    assert (after(10.0, busy=False), speed.ready) == (0, False)
    records[1].note("ready")
    assert (after(10.0, busy=False), speed.ready) == (0, True)
    assert after(11.0, (0, 10.5, 100), (1, 10.6, 50)) == 0
    assert after(10.0 + WINDOW) == 150 / WINDOW
    assert after(14.0, (0, 13.5, 10), (1, 13.6, 10)) == 20 / WINDOW  # what was before its window is not of now
    assert after(15.0, busy=False) == 20 / WINDOW  # idle workers would look slow
    assert after(17.0, (0, 16.0, 1000)) == 20 / WINDOW
    assert after(15.0 + WINDOW) == 1000 / WINDOW
    assert after(100.0) == 1000 / WINDOW  # the machine stood still
    for tail in tails:
        tail.close()


class Clock:
    """Instead of `time`: it passes when somebody sleeps."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Jobs:
    """A queue in which so much waits; it notes when how many messages are written."""

    def __init__(self, clock: Clock, backlog: int) -> None:
        self._clock, self._backlog = clock, backlog
        self.written: list[tuple[float, list[Message]]] = []

    def stats(self) -> QueueStats:
        return replace(STATS, backlog=self._backlog, runnable=self._backlog)

    def write_many(self, messages: list[Message]) -> list[str]:
        self.written.append((self._clock.now, messages))
        return ["an id"] * len(messages)


def test_the_others_pace_follows_the_speed_of_the_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock, mine = Clock(), given(monkeypatch, files(large=3000, noisy=20))
    monkeypatch.setattr("examples.demo.producer.time", clock)
    jobs = Jobs(clock, backlog=10**6)
    api = ApiServer(cast("Queue", jobs), mine, Records(str(tmp_path / "records")), [])
    planned = Plan(jobs_per_second=100.0, flood=500, others=100, seconds=20.1, share=0.4)

    def look(now: float, *, busy: bool) -> None:
        api.speed.work = 60_000.0 if now < 110 else 30_000.0

    monkeypatch.setattr(api.speed, "look", look)
    look(clock.now, busy=True)
    api.write(planned)
    each = 1000 + HANDLING
    fast, slow = (sum(since <= at < since + 10 for at, _ in jobs.written) * each for since in (100.0, 110.0))
    assert fast == pytest.approx(0.4 * 60_000 * 10, abs=2 * each)
    assert slow == pytest.approx(0.4 * 30_000 * 10, abs=2 * each)
    assert len(jobs.written) == api.others
    assert max(at for at, _ in jobs.written) < clock.now == pytest.approx(120.1)


def test_a_flood_that_is_done_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock, mine = Clock(), given(monkeypatch, files(large=300, noisy=2))
    monkeypatch.setattr("examples.demo.producer.time", clock)
    jobs = Jobs(clock, backlog=400)
    api = ApiServer(cast("Queue", jobs), mine, Records(str(tmp_path / "records")), [])
    api.speed.work = 100.0 * (1000 + HANDLING)  # 100 jobs a second
    monkeypatch.setattr(api.speed, "look", lambda now, busy: None)
    api.look()
    assert api.flood == FLOOD * 100 - 400
    assert {message.shard_key for _, batch in jobs.written for message in batch} == {"noisy"}


def waits(**by_tenant: list[float]) -> Waits:
    found = Waits("noisy")
    for tenant, values in by_tenant.items():
        for n, value in enumerate(values):
            took = {"event": "took", "id": f"{tenant} {n}", "tenant": tenant, "count": 1, "pickup": value}
            found.enter(took)
            found.enter(took | {"count": 2, "pickup": 1000.0})  # the first delivery counts
    return found


def test_others_who_wait_like_the_flood_fail_the_demo() -> None:
    assert waits(noisy=[1.0, 5.0, 9.0], quiet=[0.01, 0.5], other=[0.02]).problem() is None
    assert waits(noisy=[1.0, 5.0, 9.0], quiet=[5.0 / TIMES] * 3).problem() is None
    late = waits(noisy=[1.0, 5.0, 9.0], quiet=[0.01, 0.6], other=[0.6]).problem()
    assert late == "the others waited 600 ms (p99 600 ms), and the flood 5.0 s (p99 9.0 s): it delayed them"
    late = waits(noisy=[1.0, 5.0, 9.0], quiet=[0.01] * 98, other=[9.1] * 2).problem()
    assert late == "the others waited 10 ms (p99 9.1 s), and the flood 5.0 s (p99 9.0 s): it delayed them"
    assert waits(noisy=[1.0, 5.0, 9.0]).problem() == "nobody but the flood had a job"


def test_more_deliveries_than_the_limit_allows_fail_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, workers = Mock(), 3
    monkeypatch.setattr("examples.demo.limit.time", Mock(monotonic=Mock(side_effect=[10.0, 11.0, 20.0, 20.0])))
    limit = Limit(queue, "noisy", workers)
    assert not limit.end_in_time()
    limit.begin(jobs_per_second=50.0)  # it gets 5 of these
    assert not limit.end_in_time()
    assert limit.end_in_time()
    assert [call.args for call in queue.set_limits.call_args_list] == [
        ({"noisy": Limits(rate=5, burst=1)},),
        ({"noisy": Limits()},),
    ]
    allowed = 5 * 10 + 1 + workers
    assert limit.problem([9.0] * 99 + [15.0] * allowed + [20.0] * 99) is None
    assert limit.problem([15.0] * (allowed + 1)) == f"{allowed + 1} jobs of noisy were delivered within its limit"
