"""What the Compose file and the manifests start, as processes of this machine: no alert fires while all is well.

The commands are those of the files: only hosts, ports and folders are others. Prometheus has the alerts as they are,
but that what is so for ten seconds fires.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from examples.demo import run as demo_run
from examples.demo.show import Show
from tests.drills.conftest import ROOT, Watch, watching
from tests.drills.prometheus import Prometheus, unchanged
from tests.examples.test_kubernetes import container
from tests.examples.test_monitoring import expressions
from tests.parts import PROMETHEUS
from tests.servers import free_ports
from tests.waiting import eventually

pytestmark = [
    pytest.mark.once, pytest.mark.runs_in("test-all"), pytest.mark.timeout(300), PROMETHEUS.needed,
]  # fmt: skip
SERVICES = yaml.safe_load((ROOT / "examples" / "compose" / "compose.yaml").read_text())["services"]
WELL = 25.0
"""Seconds for which nothing may fire."""
PROGRAM = Path(sys.executable).parent
ALIVE = "/tmp/alive"  # noqa: S108 (it stands in the files only, and is replaced)
RARE = {"shardq_tenant_pickup_p99_seconds", "shardq_message_lease_lost_total", "shardq_message_dead_lettered_total"}


def started(watch: Watch, words: list[str], places: dict[str, str], folder: Path) -> subprocess.Popen[bytes]:
    """Start a command of a file, with what it names at other places."""
    changed = [places.get(word, word) for word in words]
    assert all(place in words for place in places)
    return watch.start([str(PROGRAM / changed[0]), *changed[1:]], folder)


def asked(address: str, path: str) -> tuple[int, str]:
    """The status and the body of an answer."""
    host, port = address.split(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=10)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def answers(address: str, path: str) -> bool:
    """Whether somebody answers well there."""
    try:
        return asked(address, path)[0] == 200
    except OSError:
        return False


def quiet(seen: Prometheus, seconds: float) -> None:
    """See no alert fire for so long."""
    ends = time.monotonic() + seconds

    def is_over() -> bool:
        assert not (firing := seen.firing()), firing
        return time.monotonic() >= ends

    while not is_over():
        threading.Event().wait(0.5)


@pytest.fixture
def composed() -> Iterator[Watch]:
    """On a server with the settings of the Compose file's."""
    words = SERVICES["valkey"]["command"]
    options = {words[at].removeprefix("--"): words[at + 1] for at in range(1, len(words), 2)}
    with watching(**options) as found:
        yield found


def test_the_compose_file_is_watched_and_no_alert_fires(composed: Watch, tmp_path: Path) -> None:
    watch, folder = composed, ROOT / "examples" / "compose"
    worker, metrics = (f"127.0.0.1:{port}" for port in free_ports(2))
    alive = tmp_path / "alive"
    writes = started(watch, SERVICES["producer"]["command"], {}, folder)
    works = started(
        watch,
        SERVICES["worker"]["command"],
        {ALIVE: str(alive), "0.0.0.0:9464": worker},
        folder,
    )
    started(watch, SERVICES["metrics"]["command"], {"0.0.0.0:8080": metrics}, folder)
    watch.heard(1)
    for address in (worker, metrics):
        eventually(partial(answers, address, "/metrics"), 60, every=0.1, what=f"numbers at {address}")
    seen = Prometheus(watch.stack, tmp_path, {"metrics": [metrics], "worker": [worker]}, unchanged())
    eventually(lambda: seen.ask('shardq_queue_workers{queue="shop"} == 1'), 60, every=0.2, what="a worker is seen")
    eventually(lambda: not seen.firing(), 60, every=0.2, what="that all is seen")
    quiet(seen, WELL)
    panels = {each: seen.ask(each) for each in expressions()}
    empty = [each for each, told in panels.items() if not told and not any(name in each for name in (*RARE, "ALERTS"))]
    assert empty == [], "a panel shows nothing"
    check = SERVICES["worker"]["healthcheck"]["test"][-1]
    assert subprocess.run(["sh", "-c", check.replace(ALIVE, str(alive))], timeout=30).returncode == 0
    lets_nothing_die(watch, writes)
    works.terminate()
    assert works.wait(60) == 0


def lets_nothing_die(watch: Watch, writes: subprocess.Popen[bytes]) -> None:
    """Of the shop's receipts some fail: all of them go well when they are tried again."""
    shop = watch.client.queue("shop")
    eventually(shop.failures, 60, every=0.2, what="a receipt that fails at first")
    writes.terminate()
    writes.wait()

    def is_over() -> bool:
        stats = shop.stats()
        return stats.backlog + stats.in_flight + stats.delayed == 0

    eventually(is_over, 90, every=0.2, what="that all is done")
    stats = shop.stats()
    assert (stats.dead_lettered, stats.acked) == (0, stats.written), shop.failures()
    assert {(each.task, each.error_type) for each in shop.failures()} == {("mail.receipt", "TimeoutError")}


def test_no_alert_fires_in_the_demo(watch: Watch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant floods, and a worker is killed: nobody has to be called for that.

    Whether the demo does well is shown in tests/examples/test_demo.py.
    """
    _, metrics = watch.metrics()
    seen = Prometheus(watch.stack, tmp_path, {"metrics": [metrics]}, unchanged())
    monkeypatch.setattr(demo_run, "EmbeddedServer", lambda: nullcontext(watch.server))
    with (tmp_path / "demo.txt").open("w") as told:
        show = Show(Console(file=told))
        demo = threading.Thread(target=demo_run.Demo(show, 400, 3).run)
        demo.start()
        try:
            eventually(lambda: seen.ask("shardq_queue_written_total > 0"), 60, every=0.2, what="that the demo is seen")
            eventually(lambda: not seen.firing(), 60, every=0.2, what="that all is seen")
            while demo.is_alive():
                assert not (firing := seen.firing()), firing
                demo.join(0.5)
        finally:
            demo.join()
    assert seen.ask('max_over_time(shardq_queue_backlog{queue="jobs"}[5m]) > 0'), "nothing was seen"


def test_the_manifests_run_as_they_are(watch: Watch, tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "tasks.py").write_text(
        'from shardq.tasks import Tasks\n\ntasks: Tasks[None] = Tasks("reports")\n\n\n'
        "@tasks.task\ndef report(shop: str) -> str:\n    return shop.upper()\n"
    )
    worker, scaler, push = (f"127.0.0.1:{port}" for port in free_ports(3))
    alive = tmp_path / "alive"
    works = started(
        watch, container("reports-worker")["command"],
        {ALIVE: str(alive), "0.0.0.0:9464": worker}, tmp_path,
    )  # fmt: skip
    measures = started(
        watch, container("reports-scaler")["command"], {"0.0.0.0:8080": scaler, "0.0.0.0:6000": push}, tmp_path
    )
    for name in ("livenessProbe", "readinessProbe"):
        path = container("reports-scaler")[name]["httpGet"]["path"]
        eventually(partial(answers, scaler, path), 60, every=0.1, what=name)
    probe = [
        word.replace(ALIVE, str(alive)) for word in container("reports-worker")["livenessProbe"]["exec"]["command"]
    ]
    eventually(lambda: subprocess.run(probe, timeout=30).returncode == 0, 60, every=0.2, what="livenessProbe")
    watch.heard(1)
    eventually(lambda: 'shardq_up{queue="reports"} 1' in asked(scaler, "/metrics")[1], 60, every=0.2, what="the queue")
    assert json.loads(asked(scaler, "/queues/reports?metric=load&lead=30")[1])["value"] == 0
    assert 'shardq_worker_slots{queue="reports"} 16' in asked(worker, "/metrics")[1]
    watch.server.pause()
    try:
        eventually(lambda: asked(scaler, "/readyz")[0] == 503, 60, every=0.2, what="that it is not ready")
        assert asked(scaler, "/queues/reports")[0] == 503, "no number, so that no worker is taken away"
        assert asked(scaler, "/healthz")[0] == 200
        eventually(lambda: subprocess.run(probe, timeout=30).returncode == 0, 60, every=0.2, what="livenessProbe")
    finally:
        watch.server.resume()
    for each in (works, measures):
        each.terminate()
        assert each.wait(60) == 0
