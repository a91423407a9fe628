"""`shardq edge`: what is sent arrives or stays on disk, and the spool tells what became of it."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from shardq.cli.edge.progress import ProgressLine
from shardq.errors import BackendTimeout
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
    environment = os.environ | {"SHARDQ_GATEWAY": sink.address, "SHARDQ_SPOOL": str(tmp_path / "s.db")}

    def run(*words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*EDGE, *words], input=stdin, env=environment, capture_output=True, text=True, errors="surrogateescape"
        )

    return run


@pytest.mark.runs_in("test-all")
def test_messages_come_from_arguments_lines_and_files(edge: Command, sink: Sink, tmp_path: Path) -> None:
    told = edge("send", "jobs", '{"a": 1}', "--as", "json", "-t", "t-1", "--header", "kind=x", "--delay", "2")
    assert (told.returncode, told.stderr) == (0, "")
    (first,) = sink.requests
    assert (first.message_id.hex(), first.queue, first.codec) == (told.stdout.strip(), "jobs", "m")
    assert (dict(first.headers), first.delay_ms) == ({"kind": "x"}, 2000)
    told = edge("--json", "send", "--topic", "orders.eu", "--lines", "-t", "t", stdin="one\n\ntwo\r\n")
    assert told.returncode == 2  # --json stands behind the command's name
    told = edge("send", "--json", "--topic", "orders.eu", "--lines", "-t", "t", stdin="one\n\ntwo\r\n")
    ids = [json.loads(line)["message_id"] for line in told.stdout.splitlines()]
    assert [(each.topic, each.plain_message) for each in sink.requests[1:]] == [
        ("orders.eu", b"one"),
        ("orders.eu", b"two"),
    ]
    assert [each.message_id.hex() for each in sink.requests[1:]] == ids
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"file {name}")
    assert edge("send", "files", "--each-file", str(tmp_path / "a"), str(tmp_path / "b"), "-t", "t").returncode == 0
    assert [each.plain_message for each in sink.requests[3:]] == [b"file a", b"file b"]


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("send", "jobs", "-t", "t"), "give one payload, or --lines"),
        (("send", "jobs", "a", "--lines", "-t", "t"), "give one payload, or --lines"),
        (("send", "jobs", "--each-file", "/nowhere", "-t", "t"), "No such file"),
        (("send", "jobs", "{", "--as", "json", "-t", "t"), "the payload is not JSON: Input data was truncated"),
        (("send", "{x}", "a", "-t", "t"), "a queue name may not hold"),
        (("send", "jobs", "a", "-t", "t", "--gateway", "x"), "gateway must be host:port"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(edge: Command, words: tuple[str, ...], told: str) -> None:
    found = edge(*words)
    assert found.returncode in (1, 2)
    assert told in found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.runs_in("test-all")
def test_what_comes_before_a_bad_message_is_stored_and_the_error_says_how_many(
    edge: Command, sink: Sink, tmp_path: Path
) -> None:
    """Of lines, and of files: nothing that it counts is missing, and nothing behind it is there."""
    found = edge("send", "jobs", "--lines", "--as", "json", "-t", "t", stdin="1\n2\n{\n4\n")
    assert (found.returncode, len(found.stdout.splitlines())) == (2, 2)
    assert "message 3 of stdin is not JSON" in found.stderr
    assert "; before that 2 messages went into the spool" in found.stderr
    (tmp_path / "a").write_text("file a")
    found = edge("send", "jobs", "--each-file", str(tmp_path / "a"), "/nowhere", str(tmp_path / "a"), "-t", "t")
    assert (found.returncode, len(found.stdout.splitlines())) == (2, 1)
    assert "'/nowhere' cannot be read: No such file or directory; before that 1 message went" in found.stderr
    assert edge("send", "jobs", "the last", "-t", "t").returncode == 0  # it waits for all that are in the spool
    sent = {each.message_id: each.plain_message for each in sink.requests}  # one whose ack was late is sent again
    assert sorted(sent.values()) == [b"\x01", b"\x02", b"file a", b"the last"]


@pytest.mark.runs_in("test-all")
def test_what_is_not_acked_stays_and_the_next_one_delivers_it(edge: Command, sink: Sink, tmp_path: Path) -> None:
    assert edge("status").returncode == 3  # there is no spool yet
    sink.act = lambda request, number: "keep"
    found = edge("send", "jobs", "x", "-t", "t", "--wait", "0.2")
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
    assert "INVALID  not for you" in refused.stdout
    assert edge("refused", "--json").stdout.count("\n") == 1


@pytest.mark.runs_in("test-all")
def test_what_was_refused_is_told_shown_and_sent_again(edge: Command, sink: Sink) -> None:
    sink.act = lambda request, number: "refuse INVALID" if b"bad" in request.plain_message else "ack"
    told = edge("send", "jobs", "--lines", "-t", "t", stdin="good\nbad \x1b[31mred\nbad 2\n")
    assert told.returncode == 5
    ids = told.stdout.split()
    assert "messages were not stored: 2 of INVALID (not for you)" in told.stderr
    shown = edge("refused", "--show", "all")
    assert "bad \\x1b[31mred" in shown.stdout
    assert "\x1b" not in shown.stdout
    assert edge("refused", "--show", ids[2]).stdout.endswith("bad 2\n")
    assert edge("refused", "--show", ids[0]).returncode == 3
    values = [json.loads(line) for line in edge("refused", "--show", "all", "--json").stdout.splitlines()]
    assert [base64.b64decode(each["payload"]) for each in values] == [b"bad \x1b[31mred", b"bad 2"]
    for words in ((), (ids[0], "--all"), ("--reason", "X", "--all")):
        assert edge("resend", *words).returncode == 2
    assert edge("resend", "xyz").returncode == 2
    assert edge("resend", ids[0]).returncode == 3
    assert edge("resend", ids[1]).stdout == "1 message in the spool again\n"
    assert json.loads(edge("resend", "--reason", "INVALID", "--json").stdout) == {"resent": 1}
    sink.act = lambda request, number: "ack"
    assert edge("send", "jobs", "good", "-t", "t").returncode == 0
    assert {each.hex() for each in sink.stored} > set(ids)


@pytest.mark.runs_in("test-all")
def test_many_lines_go_through_a_spool_that_is_smaller_and_a_terminal_shows_how_far_they_are(
    sink: Sink, tmp_path: Path
) -> None:
    sink.batches = 500
    sink.act = lambda request, number: "refuse INVALID" if request.plain_message == b"bad" else "ack"
    lines = [b"%d " % each + bytes(800).replace(b"\0", b"x") for each in range(20_000)] + [b"bad"]
    words = ["send", "jobs", "--lines", "-t", "t", "--gateway", sink.address, "--spool", str(tmp_path / "s.db")]
    terminal, other = pty.openpty()
    with (tmp_path / "ids").open("wb") as ids:
        process = subprocess.Popen(
            [*EDGE, *words, "--max-bytes", str(2**23)], stdin=subprocess.PIPE, stdout=ids, stderr=other
        )
        os.close(other)
        told, reading = list[bytes](), threading.Thread(target=lambda: told.extend(_read(terminal)))
        reading.start()
        process.communicate(b"\n".join(lines))
        reading.join()
    os.close(terminal)
    shown = b"".join(told).decode()
    assert process.returncode == 5, shown
    assert "20,001 in the spool, 20,000 stored" in shown
    assert "1 refused, 0 wait" in shown
    assert "1 of INVALID" in shown
    assert sorted(sink.stored.values()) == sorted(lines[:-1])
    assert len(set((tmp_path / "ids").read_text().split())) == 20_001


def _read(terminal: int) -> Iterator[bytes]:
    with contextlib.suppress(OSError):  # its other end is closed
        while found := os.read(terminal, 4096):
            yield found


class Slow:
    """An edge whose acks come slowly, and then no more."""

    def __init__(self, acks: int) -> None:
        self.acks, self.acked = acks, 0

    def status(self) -> SimpleNamespace:
        counts = SimpleNamespace(acked=self.acked, refused=0, dropped=0)
        return SimpleNamespace(spool=counts)

    def flush(self, timeout: float) -> None:
        if self.acked == self.acks:
            raise BackendTimeout("1 message still waits")
        self.acked += 1
        raise BackendTimeout("some still wait")


def test_it_waits_as_long_as_acks_come() -> None:
    slow = Slow(5)
    with pytest.raises(BackendTimeout, match="1 message still waits"):
        ProgressLine(slow, 0.0).flush()  # type: ignore[arg-type]
    assert slow.acked == 5


@pytest.mark.runs_in("test-all")
def test_what_is_only_spooled_or_held_is_not_said_to_be_stored(edge: Command, sink: Sink) -> None:
    told = edge("send", "jobs", "x", "-t", "t", "--wait", "0")
    assert (told.returncode, told.stderr) == (
        0,
        "shardq: 1 message in the spool, and not stored yet: `shardq edge run` delivers\n",
    )
    sink.act = lambda request, number: "refuse NO_QUEUE"
    told = edge("send", "jobs", "y", "-t", "t", "--wait", "3")
    assert told.returncode == 1
    assert "are held: NO_QUEUE: not for you" in told.stderr
    assert "redis://" not in told.stderr
    status = edge("status").stdout
    assert "of NO_QUEUE: not for you" in status
    assert json.loads(edge("status", "--json").stdout)["held_for"][0]["reason"] == "NO_QUEUE"


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize(
    ("form", "given", "told"),
    [
        ("json", '{"a": 1}\n{"a" 1}\n', "message 2 of stdin is not JSON: JSON is malformed: expected ':' (byte 5)"),
        ("text", "ok\n\udcff\n", "message 2 of stdin is not UTF-8 text: invalid start byte (byte 0)"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(edge: Command, form: str, given: str, told: str) -> None:
    found = edge("send", "jobs", "--lines", "--as", form, "-t", "t", stdin=given)
    assert found.returncode == 2
    assert told in found.stderr


@pytest.mark.runs_in("test-all")
def test_tail_tells_what_changes(edge: Command, sink: Sink) -> None:
    assert edge("send", "jobs", "x", "-t", "t").returncode == 0
    told = edge("tail", "--watch", "0.05", "--times", "2")
    assert told.stdout.splitlines() == ["nothing new; 0 wait, the oldest for 0 s"] * 2
