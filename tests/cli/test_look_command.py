"""`shardq message` and `shardq peek`: what somebody on call sees of messages, without a delivery."""

from __future__ import annotations

import re

import pytest

from shardq import Queue
from tests.cli.conftest import Command


def shown(text: str) -> dict[str, str]:
    """Names and values."""
    return dict(re.split(r"  +", line, maxsplit=1) for line in text.splitlines())


def headed(text: str) -> tuple[str, dict[str, str]]:
    """What stands above, on one line, and the names and values below it."""
    head, _, rest = text.partition("\n\n")
    return " ".join(head.split()), shown(rest)


@pytest.mark.runs_in("test-all")
def test_a_message_is_followed_through_its_life(cli: Command, queue: Queue) -> None:
    message_id = queue.write(b"hello", shard_key="acct\x1b-7")
    told = cli("message", "jobs", message_id)
    assert (told.code, max(map(len, told.out.splitlines())) <= 80) == (0, True)
    line, facts = headed(told.out)
    waits = r"It waits for a worker: none reads this queue; nothing of stream \d comes before it\."
    assert re.fullmatch(rf"{waits} It was never delivered\.", line)
    assert facts["state"] == "waiting"
    assert (facts["tenant"], facts["size"], facts["deliveries"]) == (r"acct\x1b-7", "5 bytes", "0")
    delivery = queue.read()
    line, facts = headed(cli("message", "jobs", message_id).out)
    assert re.fullmatch(r"It is worked on\. Its lease ends in [\d.]+ s unless its worker extends it\.", line)
    assert facts["state"] == "in_flight"
    assert facts["holder"].startswith(delivery.received.token.split(":")[3][:8])
    delivery.nack(delay=600, error="no\x1b luck")
    line, facts = headed(cli("message", "jobs", message_id).out)
    assert re.match(r"It failed once with no\\x1b luck and is tried again in (10|9) min\.", line)
    assert facts["state"] == "delayed"
    assert facts["last error"] == r"no\x1b luck"
    [fields] = cli("message", "jobs", message_id, "--json").objects
    assert (fields["state"], fields["message_id"], fields["shard_key"]) == ("delayed", message_id, "acct\x1b-7")
    queue.cancel(message_id)
    told = cli("message", "jobs", message_id)
    assert (told.code, told.out) == (3, "")
    assert "was settled, or never was" in told.err
    assert cli("message", "jobs", message_id, "--json").objects[0]["state"] == "unknown"


def test_a_message_that_is_held_back_says_by_what(cli: Command, queue: Queue) -> None:
    ids = queue.write_many([(b"x", f"other-{at}") for at in range(8)] + [(b"x", "flood")] * 10)
    line, facts = headed(cli("message", "jobs", ids[-1]).out)
    assert line.endswith("none reads this queue; about 9 messages of flood come before it. It was never delivered.")
    assert facts["state"] == "held_back, window"
    [told] = cli("message", "jobs", ids[-1], "--json").objects
    assert f"{told['sentence']} {told['second']}" == line


def test_a_bad_id_or_queue_is_told(cli: Command, queue: Queue) -> None:
    assert cli("message", "jobs", "nonsense").code == 3
    assert cli("message", "nowhere", "1-1-1").code == 3


@pytest.mark.runs_in("test-all")
def test_messages_are_looked_at_without_a_delivery(cli: Command, queue: Queue) -> None:
    """An id is shown whole, and of what waits in an overflow the shard key is a part of it: so those are short."""
    queue.write_many([({"n": at}, f"acct-with-a-very-long-name-{at}" if at % 2 else "acct-8") for at in range(30)])
    for each in queue.read_many(2):
        each.nack(error="no luck \x1b[31m " + "x" * 100)
    before = queue.stats()
    told = cli("peek", "jobs")
    lines = told.out.splitlines()
    assert (told.code, len(lines), max(map(len, lines)) <= 80) == (0, 21, True)
    assert lines[0].split("  ")[0] == "message id"
    assert "there may be more" in told.err
    assert "\x1b" not in told.out
    found = cli("peek", "jobs", "--limit", "1000", "--json").objects
    assert len(found) == 30
    assert {each["state"] for each in found} == {"waiting", "held_back"}
    assert not any("payload" in each for each in found)
    ours = cli("peek", "jobs", "--tenant", "acct-8", "--payloads", "--json").objects
    assert sorted(each["payload"]["n"] for each in ours) == list(range(0, 30, 2))
    assert '{"n":' in cli("peek", "jobs", "--payloads", "-n", "1").out
    stream = found[0]["stream"]
    assert {each["stream"] for each in cli("peek", "jobs", "--stream", str(stream), "--json").objects} == {stream}
    after = queue.stats()
    assert (after.backlog, after.in_flight, after.dead) == (before.backlog, before.in_flight, before.dead)


@pytest.mark.runs_in("test-all")
def test_other_states_are_looked_at(cli: Command, queue: Queue) -> None:
    queue.write(b"later", shard_key="t", delay=600)
    for state in ("in_flight", "dead", "waiting", "held_back"):
        told = cli("peek", "jobs", "--state", state)
        assert (told.code, told.out) == (3, "")
    assert re.search(r" due in (10|9) min ", cli("peek", "jobs", "--state", "delayed").out)
    queue.write(b"now", shard_key="t")
    queue.read()
    assert re.search(r" leased \d+ s ", cli("peek", "jobs", "--state", "in_flight").out)
    queue.write(b"bad", shard_key="t")
    queue.read().reject("no use")
    assert "no use" in cli("peek", "jobs", "--state", "dead").out
    assert cli("peek", "jobs", "--state", "gone").code == 2
    assert cli("peek", "nowhere").code == 3
