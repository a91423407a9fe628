"""`shardq write` and `shardq read`, as processes."""

from __future__ import annotations

import base64
import re
import signal
import subprocess

import pytest

from shardq import Client, Empty, Queue
from tests.cli.conftest import Command, Told
from tests.servers import Server
from tests.waiting import eventually

SAMPLES = [b"hello", "grüße 日本".encode(), b"\xff\x00\x1b[31m\n\n", b"", b"x" * 100_000]


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("body", SAMPLES, ids=lambda body: repr(body[:9]))
def test_bytes_from_stdin_come_out_untouched(cli: Command, queue: Queue, body: bytes) -> None:
    written = cli("write", "jobs", "-", "-t", "t", stdin=body)
    assert (written.code, written.err) == (0, "")
    told = cli("read", "jobs", "--ack", "--json").objects[0]
    assert told["message_id"] == written.out.strip()
    assert (told.get("payload_text", "").encode() or base64.b64decode(told.get("payload_base64", ""))) == body
    assert queue.len() == 0


@pytest.mark.runs_in("test-all")
def test_raw_gives_the_bytes_alone(cli: Command, queue: Queue) -> None:
    queue.write(b"\xff\x1b", shard_key="t")
    pipe = subprocess.PIPE
    with cli.start("read", "jobs", "--raw", "--ack", stdout=pipe) as process:
        assert process.communicate(timeout=150)[0] == b"\xff\x1b"


def test_all_that_a_message_can_have_arrives(cli: Command, queue: Queue) -> None:
    words = ("--header", "a=b=c", "--header", "d=é", "--deadline", "600", "--dedup-key", "once")
    first = cli("write", "jobs", '{"n": [1, "é"]}', "--as", "json", "--tenant", "tenant-é", *words)
    second = cli("write", "jobs", "other", "--tenant", "tenant-é", *words)
    assert first.code == second.code == 0
    assert first.out == second.out
    delivery = queue.read()
    assert delivery.payload == {"n": [1, "é"]}
    assert delivery.shard_key == "tenant-é"
    assert dict(delivery.headers) == {"a": "b=c", "d": "é"}
    with pytest.raises(Empty):
        queue.read()


@pytest.mark.runs_in("test-all")
def test_an_entry_of_an_adopted_stream_is_shown_as_its_fields(cli: Command, cli_server: Server) -> None:
    cli_server.run("XADD", "old", "*", "task", "resize", "data", b"\xff")
    with Client.from_url(cli.url) as client:
        client.queue("adopting", legacy_stream="old", legacy_group="g").read_many(1)[0].nack()
    assert cli("read", "adopting").out.endswith('{"task":"resize","data_base64":"/w=="}\n')
    assert cli("read", "adopting", "--raw", "--ack").out == '{"task":"resize","data_base64":"/w=="}'
    assert cli("stats", "adopting", "--field", "len").out == "0\n"


def test_a_delayed_message_waits(cli: Command, queue: Queue) -> None:
    assert cli("write", "jobs", "later", "-t", "t", "--delay", "3600").code == 0
    assert (queue.stats().delayed, queue.stats().backlog) == (1, 0)


def test_each_line_of_stdin_is_a_message(cli: Command, queue: Queue) -> None:
    lines = b"one\n\ntwo\r\n\xff\nlast without an end"
    told = cli("write", "jobs", "--lines", "-t", "t", "--json", stdin=lines)
    assert len({each["message_id"] for each in told.objects}) == 4
    assert [each["is_new"] for each in told.objects] == [True] * 4
    assert sorted(each.payload for each in queue.read_many(10)) == [b"last without an end", b"one", b"two", b"\xff"]


@pytest.mark.runs_in("test-all")
def test_lines_are_written_while_more_are_to_come(cli: Command, queue: Queue) -> None:
    pipe = subprocess.PIPE
    with cli.start("write", "jobs", "--lines", "-t", "t", stdin=pipe, stdout=pipe) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"first\n")
        process.stdin.flush()
        assert process.stdout.readline().strip().decode() == queue.read(block=30).message_id
        process.communicate(b"", timeout=150)


def test_many_lines_go_in_batches(cli: Command, queue: Queue) -> None:
    told = cli("write", "jobs", "--lines", "--as", "json", "-t", "t", stdin=b"".join(b"%d\n" % n for n in range(5_000)))
    assert len(set(told.out.splitlines())) == 5_000
    assert queue.len() == 5_000


def test_a_line_that_is_wrong_stops_before_its_batch(cli: Command, queue: Queue) -> None:
    told = cli("write", "jobs", "--lines", "--as", "json", "-t", "t", stdin=b"1\n\n{\n4\n")
    assert told.code == 2
    assert told.err.startswith("shardq: line 3 of stdin is not JSON: ")
    assert told.err.endswith("; nothing was written\n")
    assert queue.len() == 0


def test_a_line_that_is_wrong_later_says_what_was_written(cli: Command, queue: Queue) -> None:
    """A batch has a megabyte at most; the batches before that of the wrong line are stored."""
    lines = b"".join(b"%d\n" % number for number in range(300_000)) + b"{\n"
    told = cli("write", "jobs", "--lines", "--as", "json", "-t", "t", stdin=lines)
    assert told.code == 2
    (written,) = re.findall(r"line 300,001 of stdin is not JSON.*; all lines before line ([\d,]+) were", told.err)
    assert queue.len() == len(told.out.splitlines()) == int(written.replace(",", "")) - 1 > 0


def test_a_line_that_cannot_be_written_is_named_as_one_that_cannot_be_read(cli: Command, queue: Queue) -> None:
    told = cli("write", "jobs", "--lines", "-t", "t", stdin=b"1\n\n" + b"x" * 1_048_577 + b"\n4\n")
    assert (told.code, told.out.count("\n")) == (2, queue.len())
    assert told.err.startswith("shardq: line 3 of stdin cannot be written: the payload has 1,048,577 bytes, more than")
    assert told.err.endswith(("; nothing was written\n", "; all lines before line 3 were written\n"))


def test_read_gives_back_what_it_showed(cli: Command, queue: Queue) -> None:
    queue.write_many([(b"a", "t"), (b"b\n\x1b[2J", "t")])
    told = cli("read", "jobs", "--limit", "5")
    rows = sorted(line.split("\t")[1:] for line in told.out.splitlines())
    assert rows == [["t", "1", "a"], ["t", "1", "b\\n\\x1b[2J"]]
    assert (queue.stats().backlog, queue.stats().in_flight) == (2, 0)
    assert queue.read().count == 2


@pytest.mark.runs_in("test-all")
def test_read_says_when_its_look_was_the_last(cli: Command, queue: Queue) -> None:
    queue.write(b"a", shard_key="t")
    tellings = [cli("read", "jobs") for _ in range(3)]
    assert [told.code for told in tellings] == [0, 0, 0]
    assert tellings[1].err == ""
    assert "goes to the dead letters" in tellings[2].err
    assert queue.stats().dead == 1


def test_ack_takes_out_no_more_than_it_prints(cli: Command, queue: Queue) -> None:
    queue.write_many([(b"%d" % n, "t") for n in range(5)])
    assert len(cli("read", "jobs", "--ack", "--limit", "3").out.splitlines()) == 3
    now = queue.stats()
    assert (now.acked, now.backlog, now.in_flight) == (3, 2, 0)


def test_an_empty_queue_and_a_missing_one_are_told_apart_from_failures(cli: Command, queue: Queue) -> None:
    empty, missing = cli("read", "jobs"), cli("read", "none")
    assert (empty.code, empty.out, empty.err) == (3, "", "shardq: queue 'jobs' has nothing to deliver now\n")
    assert missing.code == 3
    assert "there is no queue 'none'" in missing.err
    assert cli("stats", "none").code == 3  # and the read did not create it


@pytest.mark.runs_in("test-all")
def test_a_blocked_read_gets_what_comes(cli: Command, queue: Queue) -> None:
    with cli.start("read", "jobs", "--wait", "30", "--ack", stdout=subprocess.PIPE) as process:
        queue.write(b"at last", shard_key="t")
        assert process.communicate(timeout=150)[0].endswith(b"at last\n")
    assert process.returncode == 0


@pytest.mark.runs_in("test-all")
def test_a_closed_pipe_ends_it_quietly_and_takes_out_nothing_unseen(cli: Command, queue: Queue) -> None:
    queue.write_many([(b"x" * 2_000, "t") for _ in range(200)])
    pipe = subprocess.PIPE
    with cli.start("read", "jobs", "--limit", "200", "--ack", stdout=pipe, stderr=pipe) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
    now = queue.stats()
    assert now.in_flight == 0
    assert 1 <= now.acked < 200
    assert now.acked + now.backlog == 200


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_waiting_read_quietly(
    cli: Command, queue: Queue, cli_server: Server, number: signal.Signals
) -> None:
    with cli.start("read", "jobs", "--wait", "50", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        eventually(lambda: cli_server.info("clients")["blocked_clients"], 30, what="a waiting reader")
        process.send_signal(number)
        assert process.stderr
        assert process.stderr.read() == b""
    assert process.returncode == 128 + number


@pytest.mark.runs_in("test-all")
def test_sigterm_gives_back_what_was_being_shown(cli: Command, queue: Queue) -> None:
    queue.write_many([(b"x" * 2_000, "t") for _ in range(200)])
    with cli.start("read", "jobs", "--limit", "200", "--ack", stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()  # the rest fills the pipe, and the command waits there
        eventually(lambda: queue.stats().acked, what="the first ack")
        process.send_signal(signal.SIGTERM)
        process.wait(150)
    now = queue.stats()
    assert process.returncode == 143
    assert (now.in_flight, now.acked + now.backlog) == (0, 200)


@pytest.mark.runs_in("test-all")
def test_a_unique_key_is_written_once_replaced_or_in_the_way(cli: Command, queue: Queue) -> None:
    def write(payload: str, *words: str) -> Told:
        return cli("write", "jobs", payload, "-t", "t", "--unique-key", "document-42", *words)

    first = write("one").out
    assert write("two").out == first
    assert write("three", "--on-conflict", "replace").out == first
    told = write("four", "--on-conflict", "raise")
    assert (told.code, told.out, told.err.count("\n")) == (1, "", 1)
    assert first.strip() in told.err
    assert [each.payload for each in queue.read_many(9)] == [b"three"]
    assert cli("write", "jobs", "-t", "t", "--lines", "--unique-key", "k").code == 2
    assert cli("write", "jobs", "x", "-t", "t", "--on-conflict", "raise").code == 2
