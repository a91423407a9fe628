"""One queue as the page gets it: who waits and why, what helps, whose turn is next; always bounded."""

from __future__ import annotations

import time

import pytest

from shardq import Client, Queue
from shardq.dashboard.past import past
from shardq.dashboard.scene import NotThere
from shardq.model.outlook import WAIT_REASONS
from tests.dashboard import night
from tests.dashboard.scenery import beats, line_of, look_at, more_of, text_of
from tests.outlook.given import NOON, minutes
from tests.servers import Server


def made(client: Client, name: str) -> Queue:
    queue = client.queue(name, streams=1)
    queue.declare()
    return queue


def test_a_flooded_queue(server: Server, client: Client) -> None:
    night.fall(server, client, large=4000)
    found = look_at(server.url, "queue", "reports")
    assert line_of(found).startswith("lumen-labs holds 9")
    assert more_of(found).startswith("The others are served first")
    assert found["said"]["tone"] == "warn"
    assert found["said"]["line"][0] == ["lumen-labs", True, "#/q/reports/tenant/lumen-labs"]
    who = found["who"]
    assert sum(who["reasons"].values()) == 4000 + 36 + 188 + 48 + 30
    assert [*who["reasons"]] == [*WAIT_REASONS]
    assert (who["reasons"]["pause"], who["reasons"]["delay"]) == (48, 30)
    assert [each["name"] for each in who["tenants"][:3]] == ["lumen-labs", "cedar-health", "bluefin-group"]
    assert who["tenants"][0]["waits"] == 4000
    assert 0.5 < who["tenants"][0]["share"] < 0.7
    turns = [each[0] for each in found["turns"]]
    assert turns[-1] == "lumen-labs"
    assert len(set(turns[:30])) == 30, "each other one comes before it has a second turn"
    assert found["turns"][-1][2] is True
    helps = {each["what"]: each for each in found["helps"]}
    assert helps["no limit of cedar-health"]["helps"]
    assert " instead of " in text_of(helps["no limit of cedar-health"]["text"])
    assert [each["task"] for each in found["kinds"]] == ["reports.render", "reports.csv", "reports.year_end"]
    assert sum(each["share"] for each in found["kinds"]) == pytest.approx(1)
    assert [each["stuck"] for each in found["workers"]] == ["one reports.render for 7 min", "", ""]
    assert found["crew"] == "47 of 48 slots busy"
    assert len(found["past"]["written"]) == 30
    assert max(filter(None, found["past"]["oldest"])) > 300


def test_a_queue_that_nobody_reads(server: Server, client: Client) -> None:
    night.fall(server, client, large=10)
    found = look_at(server.url, "queue", "exports")
    assert line_of(found).startswith("exports has no worker since ")
    assert found["said"]["tone"] == "bad"
    assert found["who"]["reasons"]["worker"] == 420
    assert text_of(found["who"]["why"]["worker"]).startswith("none reads this queue since ")
    assert (found["turns"], found["workers"], found["crew"]) == ([], [], "none")
    assert text_of(found["nobody"]).startswith(
        "No worker reads this queue. The last one, exports-6f5c9-hx2lq (pid 31), was last heard at "
    )
    assert found["past"]["written"][-1] is None, "minutes that nobody wrote down are a gap"
    (help_,) = found["helps"]
    assert (help_["what"], help_["helps"]) == ("a worker", True)
    assert text_of(help_["text"]).startswith("8 slots would serve all in about ")


def test_a_queue_in_which_something_fails_leads_to_what_fails(server: Server, client: Client) -> None:
    night.fall(server, client, large=10)
    found = look_at(server.url, "queue", "mails")
    assert found["said"]["line"][0] == ["mail.send_receipt", True, "#/q/mails/failures"]
    assert found["helps"] == []
    assert found["no_help"][1] == ["what fails", True, "#/q/mails/failures"]


def test_nobody_says_that_nothing_is_needed_while_messages_wait(server: Server, client: Client) -> None:
    """It is read by one who does not tell how long its jobs take, so nobody knows what would help."""
    queue = made(client, "jobs")
    assert text_of(look_at(server.url, "queue", "jobs")["no_help"]).startswith("Nothing is needed")
    queue.write_many([(b"x", f"tenant-{number}") for number in range(100)])
    queue.read(visibility_timeout=600)
    found = look_at(server.url, "queue", "jobs")
    assert (found["figures"]["waiting"], found["helps"]) == (99, [])
    assert text_of(found["no_help"]).startswith("Nobody knows yet what would help")


def test_what_is_not_due_is_not_served_at_once(server: Server, client: Client) -> None:
    queue = made(client, "jobs")
    queue.write(b"x", shard_key="later", delay=600)
    queue.write(b"x", shard_key="now")
    beats(server, queue, 1)
    found = {each["name"]: each for each in look_at(server.url, "queue", "jobs")["who"]["tenants"]}
    assert found["later"]["served_in"] is None
    assert (found["later"]["waits"], found["later"]["waiting"], found["now"]["waiting"]) == (1, 0, 1)


def test_a_paused_queue(server: Server, client: Client) -> None:
    night.fall(server, client, large=10)
    found = look_at(server.url, "queue", "invoices")
    assert found["is_paused"]
    assert more_of(found) == "“until the VAT fix is out”, says the pause."
    assert text_of(found["who"]["why"]["pause"]) == "the whole queue is paused by jonas"
    assert found["tag"] == {"css": "pause", "text": "paused"}


def test_an_empty_queue(server: Server, client: Client) -> None:
    made(client, "jobs")
    found = look_at(server.url, "queue", "jobs")
    assert line_of(found) == "Idle: nothing waits, and nobody reads it."
    assert found["drains"] == {"seconds": None, "text": "-", "why": ""}
    assert (found["who"]["tenants"], found["helps"], found["past"], found["kinds"]) == ([], [], None, [])


@pytest.mark.parametrize("parts", [("missing",), ("a b\x1b[31m",), (), ("jobs", "more"), ("",)])
def test_a_queue_that_is_not_there(server: Server, client: Client, parts: tuple[str, ...]) -> None:
    made(client, "jobs")
    with pytest.raises(NotThere, match=r"There is no (queue|such screen)"):
        look_at(server.url, "queue", *parts)


def test_names_of_any_bytes(server: Server, client: Client) -> None:
    queue = made(client, "jobs")
    for key in ("<b>x</b>", "y" * 400, b"\xff\xfe", "\u202e"):
        queue.write(b"x", shard_key=key)
    beats(server, queue, 1)
    found = look_at(server.url, "queue", "jobs")
    names = [each["name"] for each in found["who"]["tenants"]]
    assert "<b>x</b>" in names
    assert max(map(len, names)) <= 100
    assert {each["key"] for each in found["who"]["tenants"]} >= {"<b>x</b>", "y" * 400}


@pytest.mark.runs_in("test-all")
@pytest.mark.timeout(600)
def test_100000_tenants_and_300_workers_fit(server: Server, client: Client) -> None:
    queue = client.queue("jobs", streams=16)
    queue.declare()
    for start in range(0, 100_000, 10_000):
        queue.write_many([(b"x", f"{'t' * 200}-{number}") for number in range(start, start + 10_000)])
    beats(server, queue, 300, host=lambda number: "h" * 60 + str(number))
    begun = time.monotonic()
    found = look_at(server.url, "queue", "jobs")
    assert time.monotonic() - begun < 30
    assert found["figures"]["waiting"] == 100_000
    assert found["who"]["note"].startswith("about ")
    assert len(found["workers"]) + found["more_workers"] == 300


def test_minutes_that_are_missing_are_gaps() -> None:
    found = past(minutes(3, written=60, done=120), NOON)
    assert found is not None
    assert found["written"][:27] == [None] * 27
    assert found["written"][27:] == [1.0, 1.0, 1.0]
    assert found["start"] + 30 * found["step"] == NOON
    assert past(minutes(3, last=NOON - 7200), NOON) is None
