"""The screen of schedules as the page gets it: what is next, what will be late and why; always bounded."""

from __future__ import annotations

from typing import Any

import pytest

from shardq import Client, Delivery, Queue
from shardq.model.call import Call
from tests.dashboard.scenery import line_of, look_at, more_of, told, working, write_slots_of
from tests.servers import Server

CALL: Call[Any] = Call("reports.rollup", {"days": 1})
SETTINGS = {"streams": 2, "max_schedules": 10_000}


def test_none_is_stored(server: Server, queue: Queue) -> None:
    found = look_at(server.url, "schedules")
    assert (line_of(found), found["schedules"]) == ("No schedule is stored.", [])
    assert "max_schedules" in more_of(found)


def test_the_next_comes_first_and_what_is_paused_last(server: Server, queue: Queue) -> None:
    queue.schedules.add("yearly", CALL, shard_key="acme", cron="0 3 1 12 *", tz="Europe/Berlin")
    queue.schedules.add("often", CALL, shard_key=b"\xff", every=60, catch_up="once")
    queue.schedules.add("asleep", CALL, shard_key="acme", every=600, paused=True)
    found = look_at(server.url, "schedules")
    assert line_of(found).startswith("often is next, in ")
    often, yearly, asleep = found["schedules"]
    assert (often["name"], often["when"], often["catch_up"], often["tenant"]) == (
        "often",
        "every 60 s",
        "once",
        "\\xff",
    )
    assert (yearly["name"], yearly["when"]) == ("yearly", "0 3 1 12 * (Europe/Berlin)")
    assert (yearly["task"], yearly["queue"], yearly["tenant"]) == ("reports.rollup", "jobs", "acme")
    assert (asleep["name"], asleep["paused"], asleep["next"], asleep["late"]) == ("asleep", True, None, "")


def test_a_schedule_that_will_be_late_says_why(server: Server, client: Client, queue: Queue) -> None:
    queue.schedules.add("often", CALL, shard_key="acme", every=60)
    found = look_at(server.url, "schedules")
    assert line_of(found).endswith("1 schedule will be late.")
    assert found["schedules"][0]["late"] == "no worker reads jobs: nobody writes its calls"
    assert more_of(found) == "No worker reads jobs: nobody writes its calls. "
    assert found["said"]["tone"] == "warn"

    def handle(_: Delivery) -> None:
        """Does nothing."""

    with working(client, handle):
        told(lambda: look_at(server.url, "schedules"), lambda scene: scene["schedules"][0]["late"] == "")
        queue.pause()
        late = told(lambda: look_at(server.url, "schedules"), lambda scene: scene["schedules"][0]["late"])
    assert late["schedules"][0]["late"] == "jobs is paused: its calls will wait"


def test_the_last_run_and_those_before_it_say_what_became_of_them(server: Server, queue: Queue) -> None:
    queue.schedules.add("often", CALL, shard_key="acme", every=60)
    write_slots_of(queue, "often", 240, 180, 120, 60, -3600)
    first, second, third, _ = (eventually_read(queue) for _ in range(4))
    first.ack()
    second.reject("no")
    third.nack(delay=600, error="later")
    (row,) = look_at(server.url, "schedules")["schedules"]
    assert row["runs"] == ["done", "failed", "retry", "runs"]
    assert (row["last"]["kind"], row["last"]["text"], row["wait"]) == ("runs", "runs", 0)


def test_a_schedule_of_which_the_last_run_failed_is_said_first(server: Server, queue: Queue) -> None:
    queue.schedules.add("often", CALL, shard_key="acme", every=60)
    write_slots_of(queue, "often", 60)
    eventually_read(queue).reject("no")
    found = look_at(server.url, "schedules")
    assert line_of(found).endswith(" often failed at its last run.")
    assert found["said"]["tone"] == "bad"
    write_slots_of(queue, "often", 30)
    (row,) = look_at(server.url, "schedules")["schedules"]
    assert (row["last"]["kind"], row["wait"]) == ("waits", 1)


def test_what_another_program_wrote_of_runs_breaks_no_screen(server: Server, queue: Queue) -> None:
    queue.schedules.add("often", CALL, shard_key="acme", every=60)
    with server.client() as raw:
        raw.hset(queue.state.keys.meta, "L:u:often", b"5000:7-8-zzz 6000:999999999999999-1-0 x")
    (row,) = look_at(server.url, "schedules")["schedules"]
    assert [kind for kind in row["runs"] if kind != "done"] == []


def eventually_read(queue: Queue) -> Delivery:
    """Return the next message, of which one may come due only now."""
    return queue.read(block=60)


def test_all_are_paused(server: Server, queue: Queue) -> None:
    for name in ("one", "other"):
        queue.schedules.add(name, CALL, shard_key="acme", every=60, paused=True)
    assert line_of(look_at(server.url, "schedules")) == "All 2 schedules are paused."
    queue.schedules.remove("one")
    assert line_of(look_at(server.url, "schedules")) == "The only schedule is paused."


@pytest.mark.runs_in("test-all")
def test_thousands_of_schedules_are_a_bounded_answer(server: Server, queue: Queue) -> None:
    for number in range(1_000):
        call: Call[Any] = Call("<img src=x onerror=alert(1)>\u202e" * 20, {})
        queue.schedules.add(f"{number}/" + "a" * 190, call, shard_key=f"{number % 7}" + "\u202e<b>" * 80, every=60)
    found = look_at(server.url, "schedules")
    assert len(found["schedules"]) + found["more"] == 1_000
