"""`shardq message --result`, and what `shardq message` and `shardq stats` say of messages that are done."""

from __future__ import annotations

import re

import pytest

from shardq import Queue
from tests.cli.conftest import Command


@pytest.fixture
def kept(queue: Queue) -> Queue:
    """The queue, which keeps results."""
    queue.configure(result_ttl=600)
    return queue


@pytest.mark.runs_in("test-all")
def test_a_result_is_printed(cli: Command, kept: Queue) -> None:
    message_id = kept.write({"n": 1}, shard_key="acct-7")
    told = cli("message", "jobs", message_id, "--result")
    assert (told.code, told.out) == (3, "")
    assert "is not done yet" in told.err
    delivery = kept.read()
    delivery.progress(3, 10, "three\x1b")
    shown = cli("message", "jobs", message_id).out
    assert re.search(r"^progress +3 of 10: three\\x1b \([\d.]+ m?s ago\)$", shown, re.MULTILINE)
    delivery.ack(result={"sum": 3})
    told = cli("message", "jobs", message_id, "--result")
    assert (told.code, told.out) == (0, '{"sum":3}\n')
    assert cli("message", "jobs", message_id, "--result", "--json").objects == [
        {"message_id": message_id, "result": {"sum": 3}}
    ]
    shown = cli("message", "jobs", message_id).out
    assert re.match(r"It is done, since [\d.]+ m?s\.\nIts result is kept for [\d.]+ min\.\n\n", shown)
    assert re.search(r"^state +done$", shown, re.MULTILINE)
    assert max(map(len, shown.splitlines())) <= 80
    assert re.search(r"^results +1 kept, \d+ bytes$", cli("stats", "jobs").out, re.MULTILINE)


@pytest.mark.runs_in("test-all")
def test_bytes_are_escaped(cli: Command, kept: Queue) -> None:
    message_id = kept.write(1, shard_key="t")
    kept.read().ack(result=b"\x1b[31mred\xff")
    assert cli("message", "jobs", message_id, "--result").out == "\\x1b[31mred\\xff\n"
    [found] = cli("message", "jobs", message_id, "--result", "--json").objects
    assert set(found) == {"message_id", "result_base64"}


@pytest.mark.runs_in("test-all")
def test_no_result_is_one_clear_line(cli: Command, kept: Queue) -> None:
    dead = kept.write(1, shard_key="t")
    kept.read().reject("bad account")
    for message_id, text in ((dead, "bad account"), ("1-1-0", "never was")):
        told = cli("message", "jobs", message_id, "--result")
        assert (told.code, told.out, told.err.count("\n")) == (3, "", 1)
        assert text in told.err
    assert cli("message", "jobs", "nonsense", "--result").code == 3
    assert cli("message", "nowhere", dead, "--result").code == 3
    kept.configure(result_ttl=None)
    told = cli("message", "jobs", dead, "--result")
    assert (told.code, "result_ttl" in told.err) == (2, True)
