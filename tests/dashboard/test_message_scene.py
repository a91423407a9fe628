"""The screen of one message as the page gets it: where it is, what happened, what comes next; and never its payload."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from shardq import AsyncClient, Client, Limits, Queue
from shardq.dashboard.encoding import encoded
from shardq.dashboard.scene import AskedScene, NotThere
from shardq.dashboard.scenes.message import message
from shardq.dashboard.source import SceneSource
from shardq.dashboard.story import EVENTS_A_PAGE, PAGES
from shardq.tasks import Tasks
from tests.dashboard.crowd import HOSTILE, tell
from tests.dashboard.scenery import line_of, look_at, more_of, read, text_of, told, working
from tests.servers import Server

pytestmark = pytest.mark.once
SETTINGS = {
    "streams": 8, "streams_per_shard": 2, "window": 1, "journal": 100_000, "max_deliveries": 4, "max_dead": 100,
    "result_ttl": 60,
}  # fmt: skip
SECRET = "4111 1111 1111 1111"
TRACE = "c02d384db001dc5bb4bb84554433593f"


def look(server: Server, message_id: object) -> dict[str, Any]:
    return look_at(server.url, "message", "jobs", str(message_id))


def facts(scene: dict[str, Any]) -> dict[str, str]:
    return {label: text_of(words) for label, words in scene["facts"]}


def kinds(scene: dict[str, Any]) -> list[str]:
    return [each["kind"] for each in scene["story"]]


def test_it_waits_for_its_turn(server: Server, queue: Queue) -> None:
    ids = queue.write_many([({"card": SECRET}, "lumen-labs")] * 3000)
    tell(server, queue)
    found = look(server, ids[2000])
    line = line_of(found)
    assert line.startswith("It waits for its turn: about ")
    assert " messages of lumen-labs come before it, about " in line
    assert more_of(found).endswith("It was never delivered.")
    assert kinds(found) == ["written"]
    assert (found["story_note"], found["next"]["is_certain"]) == ("", False)
    assert found["next"]["at"] > found["now"] + 60
    assert facts(found)["Tries"] == "0 of 4"
    [tenant] = [words for label, words in found["facts"] if label == "Tenant"]
    assert tenant == [["lumen-labs", True, "#/q/jobs/tenant/lumen-labs"]]
    assert found["can_cancel"]


def test_nobody_reads(server: Server, queue: Queue) -> None:
    found = look(server, queue.write(b"x", shard_key="acme"))
    assert line_of(found).startswith("It waits for a worker: none reads this queue; nothing of stream ")
    assert found["next"] == {"at": None, "text": "delivered once a worker reads this queue", "is_certain": True}


def test_pauses_and_limits(server: Server, queue: Queue) -> None:
    queue.set_limits({"acme": Limits(rate=0.1)})
    ids = queue.write_many([(b"x", "acme")] * 9)
    tell(server, queue)
    assert line_of(look(server, ids[8])).startswith("It waits for its tenant's limit of rate: about ")
    queue.pause("acme", seconds=100)
    assert line_of(look(server, ids[8])).startswith("It is paused for 100 s more; about ")
    queue.pause("acme")
    assert line_of(look(server, ids[8])).startswith("It is paused until somebody ends the pause; about ")


def test_it_failed_and_is_tried_again(server: Server, client: Client) -> None:
    tasks: Tasks[None] = Tasks("jobs", streams=2, journal=1000)

    @tasks.task(name="mail.send", retries=15)
    def send(card: str) -> None:
        raise TimeoutError("no answer in 10 s")

    queue = client.queue(tasks)
    headers = {"traceparent": f"00-{TRACE}-c02d384db001dc5b-01", "secret": SECRET}
    written = queue.write(send.call(SECRET), shard_key="wren", headers=headers)
    with working(client, tasks):
        found = told(lambda: look(server, written), lambda scene: (scene["error"] or {}).get("trace"))
        assert line_of(found).startswith(("It failed ", "It comes with", "It is worked on", "It waits for"))
    tell(server, queue)
    assert found["error"]["type"] == "TimeoutError"
    assert found["error"]["text"].startswith("TimeoutError")
    assert " in send" in found["error"]["trace"]
    assert found["error"]["whose"] == "frames without values"
    assert kinds(found)[:3] == ["written", "delivered", "nacked"]
    texts = [text_of(each["text"]) for each in found["story"]]
    assert texts[0] == "for now, a call of mail.send"
    assert texts[1].endswith(" after it could be")
    assert texts[2].startswith("to be tried again in ")
    assert (facts(found)["Task"], facts(found)["Trace"]) == ("mail.send", TRACE)
    assert SECRET not in json.dumps(found)
    assert found["headers"] == [["secret", ""], ["traceparent", ""]]


def test_a_try_that_is_due(server: Server, queue: Queue) -> None:
    written = queue.write(b"x", shard_key="acme")
    queue.nack_many(queue.read_many(1), delay=100, error=ValueError("bad"))
    found = look(server, written)
    assert line_of(found) == "It failed once with ValueError and is tried again in 100 s."
    assert more_of(found) == "3 tries are left; then it is a dead letter."
    assert (found["next"]["text"], found["can_hasten"]) == ("tried for the 2nd time", True)
    assert 90 < found["next"]["at"] - found["now"] <= 100


def test_it_was_written_for_later(server: Server, queue: Queue) -> None:
    found = look(server, queue.write(b"x", shard_key="acme", delay=300))
    assert line_of(found) == "It was written for later, and is due in 5 min."
    assert (found["next"]["text"], found["can_hasten"]) == ("due", False)
    assert text_of(found["story"][0]["text"]) == "for later, due in 5 min"


def test_it_is_worked_on(server: Server, queue: Queue) -> None:
    written = queue.write(b"x", shard_key="acme")
    [delivery] = queue.read_many(1)
    delivery.progress(5, 10, note="half")
    found = look(server, written)
    assert line_of(found) == "It is worked on."
    assert more_of(found) == "Its lease ends in 30 s unless its worker extends it."
    assert facts(found)["Progress"].startswith("5 of 10: half (")
    assert found["story"][-1]["client"] == queue.client.name
    queue.cancel(str(written))
    assert line_of(look(server, written)).startswith("It is cancelled, and is still worked on")


def test_a_dead_letter(server: Server, queue: Queue) -> None:
    written = queue.write(b"x", shard_key="acme")
    [delivery] = queue.read_many(1)
    delivery.reject("no such mailbox")
    found = look(server, written)
    assert line_of(found).startswith("It is a dead letter for ")
    assert line_of(found).endswith(": no such mailbox.")
    assert more_of(found) == "It is delivered again only if somebody redrives it."
    assert (found["can_redrive"], found["next"]) == (True, None)


def test_what_is_done_is_told_by_the_journal(server: Server, queue: Queue) -> None:
    written = queue.write(b"x", shard_key="acme")
    queue.ack_many(queue.read_many(1))
    found = look(server, written)
    assert line_of(found).startswith(f"It is done by {queue.client.name}, ")
    assert kinds(found) == ["written", "delivered", "acked"]
    assert facts(found)["Tenant"] == "acme"
    other = queue.write(b"x", shard_key="acme")
    queue.cancel(str(other), by="jonas", note="wrong one")
    found = look(server, other)
    assert line_of(found).startswith("It was cancelled by jonas, ")
    assert text_of(found["story"][-1]["text"]) == ", by jonas: wrong one"


def test_without_a_journal(server: Server, client: Client) -> None:
    queue = client.queue("quiet", streams=2)
    written = queue.write(b"x", shard_key="acme")
    found = look_at(server.url, "message", "quiet", str(written))
    assert kinds(found) == ["written"]
    assert found["story_note"].startswith("This queue keeps no journal")
    queue.ack_many(queue.read_many(1))
    with pytest.raises(NotThere, match=r"quiet has no message .*: it was settled, or never was"):
        look_at(server.url, "message", "quiet", str(written))


def test_a_journal_that_began_later_says_so(server: Server, client: Client) -> None:
    queue = client.queue("late", streams=2)
    written = queue.write(b"x", shard_key="acme")
    queue.configure(journal=100)
    assert queue.read_many(1)
    found = look_at(server.url, "message", "late", str(written))
    assert kinds(found) == ["delivered"]
    assert found["story_note"].startswith("The journal does not reach back")


def test_a_long_journal_is_looked_through_in_pieces(server: Server, queue: Queue) -> None:
    """A look reads a bounded part of it, beginning at the time of the write; the next looks go on."""
    size = EVENTS_A_PAGE * PAGES
    written = queue.write(b"x", shard_key="acme", delay=1000)
    for _ in range(3):
        queue.write_many([(b"x", "noise")] * size)
    queue.cancel(str(written))

    async def looks() -> list[dict[str, Any]]:
        async with AsyncClient.from_url(server.url) as client:
            source, found = SceneSource(client), []
            for _ in range(10):
                found.append(read(await message(source, AskedScene(("jobs", str(written))))))
                source._answers[("story", "jobs", str(written))].ended = -1e9
                source._answers[("story", "jobs", str(written))].begun = -1e9
            return found

    found = asyncio.run(looks())
    assert kinds(found[0]) == ["written"]
    assert found[0]["story_note"].startswith("The journal is long")
    assert kinds(found[-1]) == ["written", "cancelled"]
    assert found[-1]["story_note"] == ""


@pytest.mark.parametrize("is_shown", [False, True])
def test_a_payload_is_sent_only_where_it_may_be_shown(server: Server, queue: Queue, *, is_shown: bool) -> None:
    values = [{"card": SECRET}, SECRET.encode(), SECRET]
    ids = [queue.write(value, shard_key="acme", headers={"card": SECRET}) for value in values]
    large = queue.write(SECRET.encode() * 10_000, shard_key="acme")

    async def sent(message_id: object) -> str:
        async with AsyncClient.from_url(server.url) as client:
            scene = await message(SceneSource(client, payloads=is_shown), AskedScene(("jobs", str(message_id))))
            return encoded(scene).decode()

    for each in ids:
        assert (SECRET in asyncio.run(sent(each))) == is_shown
    told_of_large = asyncio.run(sent(large))
    assert SECRET not in told_of_large
    assert ("more than is shown here" if is_shown else "--payloads") in told_of_large


@pytest.mark.parametrize("key", HOSTILE)
def test_hostile_names(server: Server, queue: Queue, key: str | bytes) -> None:
    queue.write(b"x", shard_key=key)
    written = queue.write(b"x", shard_key=key, headers={"<script>": "\u202e<b>"})
    found = look(server, written)
    assert line_of(found).isprintable()
    [tenant] = [words for label, words in found["facts"] if label == "Tenant"]
    assert tenant[0][2].isascii()
    assert tenant[0][2].startswith("#/q/jobs/tenant/")


@pytest.mark.parametrize(
    "message_id",
    ["x", "", "1-1", "1-1-99999", "1732150000000-42-7", "1-1-o." + "x" * 3000, "<script>", "\ud800", "\x00"],
)
def test_what_is_not_there(server: Server, queue: Queue, message_id: str) -> None:
    with pytest.raises(NotThere, match=r"No message can have the id|jobs has no message"):
        look(server, message_id)


def test_a_queue_that_is_not_there(server: Server, queue: Queue) -> None:
    with pytest.raises(NotThere, match="There is no queue missing"):
        look_at(server.url, "message", "missing", "1732150000000-42-7")
