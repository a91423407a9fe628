"""The screen of failures as the page gets it: groups, the chosen one in full, what is under way; always bounded."""

from __future__ import annotations

import pytest

from shardq import Client, Queue, Reject, Where
from shardq.codec import JsonCodec
from shardq.dashboard.scene import NotThere
from shardq.model.where import MAX_TEXT
from shardq.tasks import Tasks
from tests.dashboard.counter import call
from tests.dashboard.scenery import line_of, look_at, more_of, told, working
from tests.servers import Server


class SmtpError(Exception):
    """What a mail server says."""


def bury(queue: Queue, count: int, error: BaseException | str, shard_key: str = "acme") -> None:
    queue.write_many([({"n": n}, shard_key) for n in range(count)])
    while deliveries := queue.read_many(100):
        queue.reject_many(deliveries, error)


def test_a_shard_key_that_is_no_text_has_an_address(server: Server, client: Client) -> None:
    queue = client.queue("jobs", window=1)
    queue.declare()
    queue.write("x", shard_key=b"\xff")
    queue.read().reject("550 mailbox unavailable")
    chosen = look_at(server.url, "failures", "jobs")["chosen"]
    assert [(each["key"], each["name"]) for each in chosen["whose"]] == [("bytes:ff", "\\xff")]
    assert [each["key"] for each in chosen["letters"]] == ["bytes:ff"]


def test_nothing_fails(server: Server, queue: Queue) -> None:
    found = look_at(server.url, "failures", "jobs")
    assert (line_of(found), found["said"]["tone"]) == ("Nothing fails in jobs, and nothing failed lately.", "good")
    assert (found["groups"], found["chosen"], found["actions"]) == ([], None, [])


@pytest.mark.parametrize("parts", [("missing",), ("a b\x1b[31m",), (), ("jobs", "more"), ("",)])
def test_a_queue_that_is_not_there(server: Server, queue: Queue, parts: tuple[str, ...]) -> None:
    with pytest.raises(NotThere, match=r"There is no (queue|such screen)"):
        look_at(server.url, "failures", *parts)


def test_a_task_that_fails_is_said_with_its_traceback_and_whose_it_is(server: Server, client: Client) -> None:
    tasks: Tasks[None] = Tasks("jobs", streams=2)

    @tasks.task(name="mail.send", retries=9)
    def send(number: int) -> None:
        raise TimeoutError(f"no answer for {number}")

    @tasks.task(name="mail.digest")
    def digest() -> None:
        raise Reject("550 mailbox unavailable")

    queue = client.queue(tasks)
    queue.write_many([(send.call(number), f"tenant-{number % 7}") for number in range(30)])
    queue.write(digest.call(), shard_key="acme")
    with working(client, tasks, concurrency=4):
        found = told(
            lambda: look_at(server.url, "failures", "jobs"),
            lambda scene: [each["recent"] >= 30 for each in scene["groups"]] == [True, False],
        )
    assert line_of(found).startswith("mail.send fails since ")
    assert "TimeoutError, " in line_of(found)
    assert more_of(found).endswith("1 is dead of other errors than what fails now: redrive when their cause is mended.")
    first, second = found["groups"]
    assert (first["task"], first["error"], first["fails"], first["dead"]) == ("mail.send", "TimeoutError", True, 0)
    assert (second["task"], second["dead"], second["fails"]) == ("mail.digest", 1, False)
    assert sum(first["minutes"]) == first["recent"]
    chosen = found["chosen"]
    assert chosen["key"] == first["key"]
    assert "in send" in chosen["trace"]
    assert "no answer" not in chosen["trace"]
    assert len(chosen["whose"]) == 5
    assert chosen["others"] == 2
    assert chosen["newest"]["text"].startswith("TimeoutError (send ")
    assert chosen["where"] == {"task": "mail.send", "error": "TimeoutError"}
    other = look_at(server.url, "failures", "jobs", group=second["key"])["chosen"]
    assert (other["key"], other["trace"], bool(other["why"])) == (second["key"], "", True)
    assert [each["key"] for each in other["whose"]] == ["acme"]
    assert other["newest"]["state"] == "dead"
    assert [(each["id"], each["key"], each["deliveries"]) for each in other["letters"]] == [
        (other["newest"]["id"], "acme", 1)
    ]
    assert other["letters"][0]["text"] == "550 mailbox unavailable"
    assert chosen["letters"] == []


def test_a_group_that_nobody_knows_is_the_first(server: Server, queue: Queue) -> None:
    bury(queue, 3, SmtpError("550"))
    for group in ("", "nobody", "\x00" * 500):
        assert look_at(server.url, "failures", "jobs", group=group)["chosen"]["error"] == "SmtpError"


def test_where_selects_the_dead_letters_of_the_group(server: Server, queue: Queue) -> None:
    bury(queue, 3, SmtpError("550"))
    bury(queue, 2, "not in this shop")
    for group in look_at(server.url, "failures", "jobs")["groups"]:
        where = look_at(server.url, "failures", "jobs", group=group["key"])["chosen"]["where"]
        assert queue.delete_dead(Where(**where)).wait().done == group["dead"]
    assert queue.stats().dead == 0


def test_an_action_is_shown_while_it_runs_and_after(server: Server, queue: Queue) -> None:
    bury(queue, 30, SmtpError("550"))
    action = queue.redrive(Where(error="SmtpError"), rate=1, by="mira", note="the mail server is back")
    (shown,) = look_at(server.url, "failures", "jobs")["actions"]
    assert (shown["id"], shown["what"], shown["by"]) == (action.id, "redrive", "mira")
    assert (shown["of"], shown["live"], shown["stops"]) == ("error SmtpError", True, True)
    assert (shown["rate"], shown["note"]) == (1.0, "the mail server is back")
    queue.stop_action(action.id)
    (after,) = look_at(server.url, "failures", "jobs")["actions"]
    assert after["state"] in ("stopping", "stopped")


@pytest.mark.runs_in("test-all")
def test_two_hundred_groups_of_hostile_names_are_a_bounded_answer(server: Server, queue: Queue) -> None:
    for number in range(200):
        kind = type(f"E{number}" + "<img src=x onerror=alert(1)>\u202e" * 5, (Exception,), {})
        bury(queue, 2, kind("'\"><script>alert(1)</script>" * 30), f"{number}" + "\u202e<b>" * 80)
    found = look_at(server.url, "failures", "jobs")
    assert len(found["groups"]) + found["more"] == 200
    assert line_of(found) == "400 tries failed in 10 min; 400 messages failed for good and are dead."
    last = look_at(server.url, "failures", "jobs", group=found["groups"][-1]["key"])
    assert last["chosen"]["key"] == found["groups"][-1]["key"]


@pytest.mark.parametrize("task", ["x" * 600, "mail.send"])
def test_a_group_is_shown_whatever_its_task_is_called(server: Server, task: str) -> None:
    """Anybody who may write can call a task so. A filter takes no name as long as that."""
    with Client.from_url(server.url, codec=JsonCodec()) as client:
        queue = client.queue("jobs", create=True)
        queue.write("another", shard_key="globex")
        queue.nack_many(queue.read_many(1), delay=600.0, error=TimeoutError("no answer"))
        queue.configure(visibility_timeout=0.1)
        queue.write(call(task), shard_key="acme")
        queue.read()
        queue.read(block=30)  # its lease has ended
    found = look_at(server.url, "failures", "jobs")
    (group,) = (each["key"] for each in found["groups"] if each["task"])
    found = look_at(server.url, "failures", "jobs", group=group)
    assert found["chosen"]["task"].startswith(task[:100])
    assert found["chosen"]["waiting"] == (None if len(task) > MAX_TEXT else 0)
