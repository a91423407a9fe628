"""`shardq edge`: what is sent arrives or stays on disk, and the spool tells what became of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.edge.sink import Sink, running
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(120)
Command = Callable[..., "subprocess.CompletedProcess[str]"]
EDGE = [sys.executable, "-m", "shardq.cli", "edge"]


@pytest.fixture
def sink() -> Iterator[Sink]:
    with running(Sink()) as sink:
        yield sink


@pytest.fixture
def edge(tmp_path: Path, sink: Sink) -> Command:
    """Runs `shardq edge` with the sink as the gateway."""
    import os

    environment = os.environ | {"SHARDQ_GATEWAY": sink.address, "SHARDQ_SPOOL": str(tmp_path / "s.db")}

    def run(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run([*EDGE, *words], input=stdin, env=environment, capture_output=True, text=True)

    return run


@pytest.mark.runs_in("test-all")
def test_messages_come_from_arguments_lines_and_files(edge: Command, sink: Sink, tmp_path: Path) -> None:
    told = edge("send", "jobs", '{"a": 1}', "--as", "json", "-k", "t-1", "--header", "kind=x", "--delay", "2")
    assert (told.returncode, told.stderr) == (0, "")
    (first,) = sink.requests
    assert (first.message_id.hex(), first.queue, first.codec) == (told.stdout.strip(), "jobs", "m")
    assert (dict(first.headers), first.delay_ms) == ({"kind": "x"}, 2000)
    told = edge("--json", "send", "--topic", "orders.eu", "--lines", "-k", "t", stdin="one\n\ntwo\r\n")
    assert told.returncode == 2  # --json stands behind the command's name
    told = edge("send", "--json", "--topic", "orders.eu", "--lines", "-k", "t", stdin="one\n\ntwo\r\n")
    ids = [json.loads(line)["message_id"] for line in told.stdout.splitlines()]
    assert [(each.topic, each.plain_message) for each in sink.requests[1:]] == [
        ("orders.eu", b"one"),
        ("orders.eu", b"two"),
    ]
    assert [each.message_id.hex() for each in sink.requests[1:]] == ids
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"file {name}")
    assert edge("send", "files", "--each-file", str(tmp_path / "a"), str(tmp_path / "b"), "-k", "t").returncode == 0
    assert [each.plain_message for each in sink.requests[3:]] == [b"file a", b"file b"]


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("send", "jobs", "-k", "t"), "give one payload, or --lines"),
        (("send", "jobs", "a", "--lines", "-k", "t"), "give one payload, or --lines"),
        (("send", "jobs", "--each-file", "/nowhere", "-k", "t"), "No such file"),
        (("send", "jobs", "{", "--as", "json", "-k", "t"), "the payload is not JSON"),
        (("send", "{x}", "a", "-k", "t"), "a queue name may not hold"),
        (("send", "jobs", "a", "-k", "t", "--gateway", "x"), "gateway must be host:port"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(edge: Command, words: tuple[str, ...], told: str) -> None:
    found = edge(*words)
    assert found.returncode in (1, 2)
    assert told in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.runs_in("test-all")
def test_what_is_not_acked_stays_and_the_next_one_delivers_it(edge: Command, sink: Sink, tmp_path: Path) -> None:
    assert edge("status").returncode == 3  # there is no spool yet
    sink.act = lambda request, number: "keep"
    found = edge("send", "jobs", "x", "-k", "t", "--wait", "0.2")
    assert found.returncode == 1
    assert "1 messages still wait in the spool" in found.stderr
    told = json.loads(edge("status", "--json").stdout)
    assert (told["waiting"], told["accepted"], told["acked"], told["delivered_by"]) == (1, 1, 0, None)
    text = edge("status").stdout
    assert "waiting   1 messages" in text
    assert "delivery  by nobody now" in text
    sink.act = lambda request, number: "refuse"
    command = [*EDGE, "run", "--gateway", sink.address, "--spool", str(tmp_path / "s.db")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = list[str]()
        while not said or "connected" not in said[-1]:
            said.append(process.stderr.readline())
            assert said[-1]
        eventually(lambda: json.loads(edge("status", "--json").stdout)["refused"] == 1, 30)
        assert json.loads(edge("status", "--json").stdout)["delivered_by"] == process.pid
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 130
    refused = edge("refused")
    assert refused.returncode == 0
    assert "NOT_ALLOWED  not for you" in refused.stdout
    assert edge("refused", "--json").stdout.count("\n") == 1


@pytest.mark.runs_in("test-all")
def test_tail_tells_what_changes(edge: Command, sink: Sink) -> None:
    assert edge("send", "jobs", "x", "-k", "t").returncode == 0
    told = edge("tail", "--every", "0.05", "--times", "2")
    assert told.stdout.splitlines() == ["nothing new; 0 wait, the oldest for 0 s"] * 2
