"""The screen of settings as the page gets it: what is set, by whom, and how it differs from the file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from shardq import AsyncClient, Client, Limits, Queue
from shardq.dashboard.scene import AskedScene
from shardq.dashboard.scenes.settings import settings
from shardq.dashboard.source import SceneSource
from tests.dashboard.scenery import line_of, look_at, more_of, read
from tests.servers import Server

FILE = """
[queues.jobs]
streams = 2
visibility_timeout = 60
dead_ttl = "none"

[queues.jobs.limits]
"acme" = "gold"

[queues.jobs.plans.gold]
rate = 10

[queues.later]
streams = 4

[[bindings]]
pattern = "orders.*"
queue = "jobs"
"""

SETTINGS = {"streams": 2, "journal": 1000}


def beside_file(url: str, path: Path, *parts: str) -> dict[str, Any]:
    """Look at settings beside a file that declares queues."""

    async def look() -> dict[str, Any]:
        async with AsyncClient.from_url(url) as client:
            return await settings(SceneSource(client, declared=path), AskedScene(parts))

    return read(asyncio.run(look()))


def test_what_is_set_comes_first_and_says_what_is_usual(server: Server, queue: Queue) -> None:
    found = look_at(server.url, "settings", "jobs")
    assert line_of(found) == "2 settings are not the usual ones."
    first, second, third = found["settings"][:3]
    assert (first["name"], first["value"], first["usual"], first["set"]) == ("streams", "2", "64", True)
    assert (second["name"], second["value"], second["set"], third["set"]) == ("journal", "1000", True, False)
    assert {each["file"] for each in found["settings"]} == {None}
    assert (found["file"], found["differences"], found["findings"]) == (None, [], [])


def test_pauses_limits_and_weights_say_who_gave_them_until_when_and_why(server: Server, queue: Queue) -> None:
    queue.set_plan("gold", rate=10, weight=3)
    queue.set_limits({"acme": Limits(rate=2), "other": "gold"}, seconds=600, by="mira", note="until their import ends")
    queue.set_weights({"acme": 5}, by="mira")
    queue.pause(by="jonas", note="until the VAT fix is out")
    queue.configure(max_len=5, by="mira", note="a small one")
    found = look_at(server.url, "settings", "jobs")
    assert line_of(found) == "3 settings are not the usual ones; 1 pause and 2 limits and 1 weight stand."
    (paused,) = found["paused"]
    assert (paused["key"], paused["name"], paused["by"], paused["until"]) == (None, "", "jonas", None)
    assert (paused["note"], paused["since"] > 0) == ("until the VAT fix is out", True)
    limits = {each["key"]: each for each in found["limits"]}
    assert {key: each["what"] for key, each in limits.items()} == {"acme": "rate=2", "other": "plan gold"}
    assert limits["acme"]["until"] - found["now"] == pytest.approx(600, abs=60)
    assert (limits["acme"]["by"], limits["acme"]["note"]) == ("mira", "until their import ends")
    assert [(each["key"], each["what"], each["by"]) for each in found["weights"]] == [("acme", "5", "mira")]
    (plan,) = found["plans"]
    assert (plan["name"], plan["what"], plan["weight"], plan["tenants"]) == ("gold", "rate=10 weight=3", 3, 1)
    last = found["done"][0]
    assert (last["kind"], last["by"], last["note"], last["name"]) == ("configured", "mira", "a small one", "")


def test_without_a_journal_nobody_knows_who_changed_what(server: Server, client: Client) -> None:
    client.queue("plain", create=True).declare()
    found = look_at(server.url, "settings", "plain")
    assert (found["journal"], found["done"]) == (0, [])


def test_each_difference_from_the_file_is_a_line_as_shardq_apply_shows_it(
    server: Server, queue: Queue, tmp_path: Path
) -> None:
    path = tmp_path / "queues.toml"
    path.write_text(FILE)
    found = beside_file(server.url, path, "jobs")
    assert (line_of(found), found["said"]["tone"]) == ("4 differences from the file.", "warn")
    assert [(each["what"], each["line"]) for each in found["differences"]] == [
        ("queue 'jobs'", "visibility_timeout: 30.0 -> 60"),
        ("queue 'jobs'", "plan 'gold': none -> rate=10"),
        ("queue 'jobs'", "limits of 'acme': none -> plan gold"),
        ("router 'default'", "bind 'orders.*' to 'jobs'"),
    ]
    rows = {each["name"]: each for each in found["settings"]}
    assert (rows["visibility_timeout"]["value"], rows["visibility_timeout"]["file"]) == ("30", "60")
    assert (found["file"]["name"], found["file"]["declared"]) == ("queues.toml", True)
    queue.configure(visibility_timeout=60)
    queue.set_plan("gold", rate=10)
    queue.set_limits({"acme": "gold"})
    queue.client.bind("orders.*", queue)
    after = beside_file(server.url, path, "jobs")
    assert (after["differences"], after["said"]["tone"]) == ([], "good")
    assert line_of(after).endswith(", as the file declares.")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[queues.other]\n", "The file does not name this queue."),
        ("queues = 3", "The file cannot be read: "),
        ("[queues.jobs.limits]\nacme = 'gold'", "there is no plan 'gold'"),
        (None, "The file cannot be read: "),
    ],
)
def test_a_file_that_says_nothing_or_nothing_right_is_told(
    server: Server, queue: Queue, tmp_path: Path, text: str | None, said: str
) -> None:
    path = tmp_path / "queues.toml"
    if text is not None:
        path.write_text(text)
    found = beside_file(server.url, path, "jobs")
    assert said in more_of(found)
    assert str(tmp_path) not in str(found["file"])


def test_all_queues_stand_in_one_list_and_those_that_differ_come_first(
    server: Server, queue: Queue, client: Client, tmp_path: Path
) -> None:
    client.queue("another", create=True).declare()
    path = tmp_path / "queues.toml"
    path.write_text(FILE)
    found = beside_file(server.url, path)
    assert line_of(found) == "1 of 2 queues differs from the file, and 1 queue of the file is not there."
    assert [(each["queue"], each["differences"], each["own"]) for each in found["queues"]] == [
        ("jobs", 4, "streams=2, journal=1000"), ("another", 0, ""),
    ]  # fmt: skip
    assert found["missing"] == ["later"]
    assert line_of(look_at(server.url, "settings")) == "2 queues."


def test_a_pause_that_was_forgotten_is_found_as_the_doctor_finds_it(server: Server, queue: Queue) -> None:
    queue.write(b"x", shard_key="acme")
    (found,) = look_at(server.url, "settings", "jobs")["findings"]
    assert (found["name"], found["line"]) == ("no-worker", "jobs has no worker: 1 message waits.")
    assert found["mend"].startswith("Start one: shardq worker")


@pytest.mark.runs_in("test-all")
def test_thousands_of_limits_with_hostile_names_are_a_bounded_answer(server: Server, queue: Queue) -> None:
    hostile: dict[str | bytes, Limits | str] = {
        f"{number}\u202e<img src=x onerror=alert(1)>{'x' * 400}": Limits(rate=1) for number in range(5_000)
    }
    queue.set_limits(hostile, by="<b>" * 33, note="'\">" * 66)
    found = look_at(server.url, "settings", "jobs")
    assert len(found["limits"]) + found["more_limits"] == 5_000
