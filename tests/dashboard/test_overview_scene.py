"""The overview as the page gets it: which queue needs somebody; bounded, however many queues there are."""

from __future__ import annotations

import pytest

from shardq import Client, Limits, Queue, Where
from shardq.dashboard.scene import NotThere
from shardq.dashboard.scenes.overview import MAX_QUEUES
from tests.dashboard import night
from tests.dashboard.scenery import beats, line_of, look_at, more_of, text_of
from tests.servers import Server


def made(client: Client, name: str) -> Queue:
    queue = client.queue(name, streams=1)
    queue.declare()
    return queue


def test_there_is_no_queue_yet(server: Server) -> None:
    found = look_at(server.url, "overview")
    assert line_of(found) == "There is no queue yet: write a message, and here it is."
    assert (found["queues"], found["did"], found["server"], found["all"]) == ([], [], [], 0)


def test_a_night(server: Server, client: Client) -> None:
    """Those that need somebody are told first and lead to their screens; what may wait is told below."""
    night.fall(server, client, large=4000)
    found = look_at(server.url, "overview")
    assert line_of(found).startswith("2 of 5 queues need you. exports has no worker since ")
    assert " mails: mail.send_receipt fails since " in line_of(found)
    assert found["said"]["tone"] == "bad"
    assert ["exports", True, "#/q/exports"] in found["said"]["line"]
    assert ["no worker", "bad"] in found["said"]["line"]
    assert ["fails", "bad"] in found["said"]["line"]
    assert more_of(found).startswith("invoices: 2,663 wait because jonas paused it at ")
    assert " reports: lumen-labs holds 9" in more_of(found)
    rows = {each["name"]: each for each in found["queues"]}
    assert [*rows] == ["exports", "mails", "invoices", "reports", "thumbnails"]
    assert [each["tone"] for each in rows.values()] == ["bad", "bad", "pause", "warn", "good"]
    assert rows["exports"]["tag"] == {"css": "bad", "text": "no worker"}
    assert rows["invoices"]["tag"] == {"css": "pause", "text": "paused"}
    assert rows["invoices"]["reasons"] == {"pause": 2663}
    assert (rows["invoices"]["oldest"], rows["exports"]["paused_for"]) == (None, None)
    assert rows["invoices"]["paused_for"] >= 0, "what is paused has no first in line, but a pause"
    assert text_of(rows["exports"]["line"]).startswith("No worker since "), "its name stands above"
    assert ["No worker", "bad"] in rows["exports"]["line"]
    assert rows["thumbnails"]["drains"] == {"seconds": None, "text": "at once", "why": ""}
    assert (rows["reports"]["busy"], rows["reports"]["slots"]) == (47, 48)
    assert len(rows["reports"]["lately"]["written"]) == 30
    assert max(filter(None, rows["reports"]["lately"]["written"])) > 100
    figures = found["figures"]
    assert figures["waiting"] == sum(each["waiting"] for each in rows.values())
    assert figures["slots"] == 128


def test_a_sentence_says_its_times_for_any_zone(server: Server, client: Client) -> None:
    queue = made(client, "jobs")
    queue.pause(by="jonas")
    found = look_at(server.url, "overview")
    (part,) = (each for each in found["said"]["line"] if len(each) == 4)
    assert found["now"] - 60 < part[3] <= found["now"]


def test_what_people_did(server: Server, client: Client) -> None:
    queue = made(client, "jobs")
    queue.set_limits({"acme": Limits(rate=2, max_in_flight=3)}, by="mira", seconds=600, note="a favour")
    queue.pause("umbrella", by="jonas")
    queue.set_weights({"globex": 3}, by="ada")
    queue.pause(by="eve", note="the VAT fix")
    queue.write(b"x", shard_key="acme")
    queue.resume(by="eve")
    queue.reject_many(queue.read_many(1), "broken")
    queue.redrive(Where(state="dead"), by="bob", rate=100).wait(30)
    found = [text_of(each["text"]) for each in look_at(server.url, "overview")["did"]]
    assert found[0] == "bob redrove 1 dead letter of jobs"
    assert "jonas paused umbrella in jobs" in found
    assert "ada gave globex in jobs the weight 3" in found
    (limited,) = (each for each in found if each.startswith("mira"))
    assert limited.startswith("mira limited acme in jobs to 2/s and to 3 in flight until ")
    assert limited.endswith(": a favour")


def test_a_queue_that_was_lost_needs_somebody(server: Server, client: Client) -> None:
    queue = made(client, "jobs")
    queue.write(b"x", shard_key="acme")
    with server.client() as raw:
        raw.delete(*(key for key in raw.scan_iter("*") if b"{jobs}" in key or b"jobs}" in key))
    found = look_at(server.url, "overview")
    assert line_of(found) == "jobs is missing: Redis lost its keys, or somebody deleted them."
    assert found["queues"] == [
        {"name": "jobs", "tone": "bad", "line": [["Missing: Redis lost its keys, or somebody deleted them."]],
         "unknown": True}
    ]  # fmt: skip


def test_the_server_is_told_of(server: Server, client: Client) -> None:
    made(client, "jobs")
    found = {name: text_of(text) for name, text in look_at(server.url, "overview")["server"]}
    assert found["Version"].split()[0] in ("Redis", "Valkey")
    assert found["A restart"].startswith("loses ")
    assert "without a limit" in found["Memory"]


def test_a_search_finds_queues_by_name(server: Server, client: Client) -> None:
    for name in ("mails", "mails-slow", "other"):
        made(client, name)
    found = look_at(server.url, "overview", search=" MAILS ")
    assert [each["name"] for each in found["queues"]] == ["mails", "mails-slow"]
    assert (found["all"], found["more"]) == (3, 0)
    assert look_at(server.url, "overview", search="<b>")["queues"] == []


def test_more_is_asked_than_there_is(server: Server) -> None:
    with pytest.raises(NotThere):
        look_at(server.url, "overview", "jobs")


@pytest.mark.runs_in("test-all")
def test_1000_queues_fit(server: Server, client: Client) -> None:
    """Names are as long as may be, and each queue has something to say."""
    queues = [made(client, f"q{number:03}-{'x' * 195}") for number in range(1000)]
    for queue in queues[:80]:
        queue.write(b"x", shard_key="acme")
        beats(server, queue, 1, heard=1_000_000_000_000)
    found = look_at(server.url, "overview")
    assert found["all"] == 1000
    assert 0 < len(found["queues"]) <= MAX_QUEUES
    assert found["more"] == 1000 - len(found["queues"])
    assert " And 7" in line_of(found)
    assert more_of(found).endswith("The first 500 of 1,000 queues are looked at.")
    assert all(each["tone"] == "bad" for each in found["queues"])
