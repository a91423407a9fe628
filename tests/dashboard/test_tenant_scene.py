"""The screen of one tenant as the page gets it: why it waits, until when, what would help."""

from __future__ import annotations

from typing import Any

import pytest

from shardq import Client, Limits, Queue
from shardq.dashboard.names import address_of
from shardq.dashboard.scene import NotThere
from shardq.model.outlook import WAIT_REASONS
from tests.dashboard.crowd import HOSTILE, tell
from tests.dashboard.scenery import line_of, look_at, more_of, text_of
from tests.servers import Server

pytestmark = pytest.mark.once
SETTINGS = {"streams": 8, "streams_per_shard": 2, "window": 1, "max_len": 100_000, "max_dead": 100}


def write(queue: Queue, count: int, key: str | bytes, **options: Any) -> None:
    if options:
        for _ in range(count):
            queue.write(b"x", shard_key=key, **options)
    else:
        queue.write_many([(b"x", key)] * count)


def look(server: Server, key: str | bytes, **query: str) -> dict[str, Any]:
    return look_at(server.url, "tenant", "jobs", address_of(key), **query)


def told(pairs: list[list[Any]]) -> dict[str, str]:
    return {label: text_of(words) for label, words in pairs}


def test_no_worker_reads(server: Server, queue: Queue) -> None:
    write(queue, 20, "acme")
    found = look(server, "acme")
    assert line_of(found) == "acme waits because no worker reads this queue: 20 messages."
    assert ["no worker reads this queue", "bad"] in found["said"]["line"]
    assert found["reasons"] == {"worker": 20}
    assert [(each["what"], each["helps"]) for each in found["helps"]] == [("a worker", True)]
    assert found["turns"] == []
    assert (found["figures"]["waiting"], found["can_purge"]) == (20, 20)


def test_turns(server: Server, queue: Queue) -> None:
    write(queue, 3000, "lumen-labs")
    write(queue, 2, "fern")
    tell(server, queue, {"lumen-labs": (300, 9.0), "fern": (5, 0.2)})
    found = look(server, "lumen-labs")
    line = line_of(found)
    assert line.startswith("lumen-labs waits for its turns: 3,000 messages, the last one served in about ")
    assert found["said"]["tone"] == "warn"
    assert more_of(found) == (
        "It was served 5.0/s in the last minute, 62 % of all; 99 of 100 were picked up within 9.9 s. It is limited by "
        "the 8 slots, not by a limit or by one other tenant."
    )
    facts = told(found["turns"])
    assert facts["Its fair share"] == "at least 1 of 2 parts, 4.0/s; it had 5.0/s in the last minute"
    assert facts["Before its last one"] == "2,999 of its own, and what others write meanwhile"
    assert "Before its next message" in facts
    helps = {each["what"]: (text_of(each["text"]), each["helps"]) for each in found["helps"]}
    assert helps["two more workers"][1] is True
    assert " instead of " in helps["two more workers"][0]
    assert helps["pausing lumen-labs"][1] is False
    small = look(server, "fern")
    assert line_of(small).startswith("fern hardly waits: 2 messages, served in ")


def test_one_beyond_those_that_are_shown(server: Server, queue: Queue) -> None:
    """Also the smallest of many tenants is reckoned by itself."""
    queue.write_many([(b"x", f"tenant-{at}") for at in range(300) for _ in range(3)])
    write(queue, 1, "last")
    tell(server, queue)
    found = look(server, "last")
    assert found["reasons"] == {"turn": 1}
    assert line_of(found).startswith("last ")
    assert "1 message, " in line_of(found)
    assert text_of(found["why"]["turn"]).startswith("others are served in between; the last in ")


def test_its_own_limit(server: Server, queue: Queue) -> None:
    write(queue, 188, "cedar")
    queue.set_limits({"cedar": Limits(rate=2.0)}, seconds=3600, by="mira", note="too fast")
    tell(server, queue, busy=2.0)
    found = look(server, "cedar")
    assert line_of(found).startswith("cedar waits for its own limit of 2/s: 186 messages, the last one served in about")
    more = more_of(found)
    assert more.startswith("Nobody else is the reason: 6 slots are free. Limited by mira since ")
    assert more.endswith(". “too fast”, says the limit.")
    assert told(found["limits"])["Rate"] == "2/s"
    assert told(found["limits"])["These limits"].startswith("by mira since ")
    [lift] = [each for each in found["helps"] if each["what"] == "no limit of cedar"]
    assert lift["helps"]
    assert text_of(lift["text"]).startswith("its last message in ")


def test_the_limit_of_its_plan_and_of_the_queue(server: Server, queue: Queue) -> None:
    queue.set_plan("gold", rate=20, weight=3)
    queue.set_limits({"acme": "gold"})
    write(queue, 100, "acme")
    tell(server, queue)
    found = look(server, "acme")
    assert "acme waits for the limit of its plan gold, 20/s: " in line_of(found)
    assert (found["plan"], told(found["limits"])["Weight"]) == ("gold", "3")
    queue.configure(max_in_flight=1)
    write(queue, 9, "blue")
    assert [each.shard_key for each in queue.read_many(50)].count("blue") == 1
    assert line_of(look(server, "blue")).startswith("blue waits for the queue's limit for each tenant, 1 in flight: ")
    assert told(look(server, "blue")["limits"])["In flight at once"] == "1 of 1"


def test_a_pause_of_it(server: Server, queue: Queue) -> None:
    write(queue, 48, "bluefin")
    queue.pause("bluefin", seconds=1800, by="jonas", note="until their import is over")
    tell(server, queue)
    found = look(server, "bluefin")
    assert line_of(found) == "bluefin is paused by jonas for 30 min more: 48 messages wait."
    more = more_of(found)
    assert more.startswith("It ends by itself at ")
    assert more.endswith("messages in flight continue. “until their import is over”, says the pause.")
    assert (found["said"]["tone"], found["is_paused"]) == ("pause", True)
    queue.pause("bluefin", by="jonas")
    assert line_of(look(server, "bluefin")) == "bluefin is paused by jonas without an end: 48 messages wait."
    assert more_of(look(server, "bluefin")).startswith("Somebody must end the pause.")
    [lift] = [each for each in found["helps"] if each["what"] == "no pause of bluefin"]
    assert lift["helps"]


def test_a_pause_of_the_whole_queue(server: Server, queue: Queue) -> None:
    write(queue, 3, "acme")
    tell(server, queue)
    queue.pause(by="jonas", note="until the VAT fix is out")
    found = look(server, "acme")
    assert line_of(found) == "acme waits because the whole queue is paused: 3 messages."
    assert more_of(found).startswith("Paused by jonas since ")
    assert more_of(found).endswith(", without an end. “until the VAT fix is out”, says the pause.")
    assert told(found["limits"])["Pause"].startswith("of the whole queue; by jonas since ")
    assert not found["is_paused"]


def test_tries_and_what_is_not_due(server: Server, queue: Queue) -> None:
    write(queue, 2, "acme")
    tell(server, queue)
    queue.nack_many(queue.read_many(2), delay=100, error=ValueError("bad"))
    found = look(server, "acme")
    assert line_of(found) == "2 messages of acme failed and wait for their next try; nothing else of it waits."
    assert found["reasons"] == {"retry": 2}
    assert [(each["error"], each["retried"]) for each in found["failures"]] == [("ValueError", 2)]
    write(queue, 1, "blue", delay=100)
    assert line_of(look(server, "blue")) == "blue does not wait: 1 message was written for later and is not due yet."


def test_one_that_does_not_wait(server: Server, queue: Queue) -> None:
    tell(server, queue, {"acme": (48, 0.2)})
    found = look(server, "acme")
    assert line_of(found) == "acme does not wait: nothing of it waits or is worked on."
    assert (found["figures"]["share"], round(found["figures"]["p99"], 1)) == (0.1, 0.3)
    assert found["no_help"] == "Nothing is needed."
    write(queue, 1, "acme")
    assert len(queue.read_many(9)) == 1
    assert line_of(look(server, "acme")) == "acme does not wait: 1 message of it is worked on."


def test_its_messages_lead_to_their_screens(server: Server, queue: Queue) -> None:
    write(queue, 4, "acme")
    [first] = queue.read_many(1)
    first.reject("no such mailbox")
    [second] = queue.read_many(1)
    write(queue, 1, "acme", delay=50)
    write(queue, 9, "blue")
    found = look(server, "acme")
    states = [each["state"] for each in found["messages"]]
    assert states == ["in_flight", "held_back", "held_back", "delayed", "dead"]
    assert [each["error"] for each in found["messages"]][-1] == "no such mailbox"
    assert found["messages"][0]["id"] == second.message_id
    for each in found["messages"]:
        assert look_at(server.url, "message", "jobs", each["id"])["id"] == each["id"]


def test_neighbours_on_demand(server: Server, queue: Queue) -> None:
    write(queue, 30, "loud")
    for at in range(20):
        write(queue, 1, f"tenant-{at}")
    assert look(server, "tenant-1")["neighbours"] is None
    near = look(server, "loud", neighbours="1")["neighbours"]
    assert near
    assert all(each["shared"] <= each["of"] == 2 and each["backlog"] == 1 for each in near)


def test_reasons_add_up(server: Server, queue: Queue) -> None:
    write(queue, 30, "acme")
    write(queue, 3, "acme", delay=500)
    queue.set_limits({"acme": Limits(max_in_flight=2)})
    tell(server, queue)
    queue.nack_many(queue.read_many(1), delay=500, error="no")
    found = look(server, "acme")
    tenant = queue.tenant("acme")
    assert sum(found["reasons"].values()) == tenant.backlog + tenant.delayed
    assert set(found["reasons"]) == {"turn", "limit", "delay", "retry"} <= set(WAIT_REASONS)
    assert set(found["why"]) == set(found["reasons"])


@pytest.mark.parametrize("key", HOSTILE)
def test_hostile_names(server: Server, queue: Queue, key: str | bytes) -> None:
    write(queue, 2, key)
    queue.pause(key, seconds=100, by="<b>mira</b>", note="<script>\u202e")
    found = look(server, key, neighbours="1")
    assert found["figures"]["waiting"] == 2
    assert line_of(found).isprintable()
    assert more_of(found).isprintable()
    assert len(line_of(found)) < 120
    assert found["messages"]


@pytest.mark.parametrize("parts", [(), ("jobs",), ("jobs", ""), ("jobs", "a", "b"), ("a b", "c"), ("missing", "acme")])
def test_what_is_not_there(server: Server, queue: Queue, parts: tuple[str, ...]) -> None:
    with pytest.raises(NotThere, match=r"There is no (queue|such screen|tenant)"):
        look_at(server.url, "tenant", *parts)


def test_a_queue_without_a_window(server: Server, client: Client) -> None:
    client.queue("open", window=0).declare()
    with pytest.raises(NotThere, match="open has no window"):
        look_at(server.url, "tenant", "open", "acme")
