"""Actions of the page: each says what it does before it does it, and does that, in the name of the person."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator

import pytest

from shardq import Client, Limits, Queue, Where
from tests.dashboard import counter as at
from tests.dashboard.counter import Counter, bury, events, fail, fill
from tests.servers import Server

pytestmark = pytest.mark.once


@pytest.fixture
def mails(client: Client) -> Queue:
    return at.open_queue(client, "mails")


@pytest.fixture
async def counter(server: Server) -> AsyncIterator[Counter]:
    async with at.counter(server.url) as found:
        yield found


async def settled(counter: Counter, queue: str, action_id: str) -> dict[str, object]:
    """How an action ended that the page works on."""
    await counter.handles.quiet()
    return (await counter.visitor().handle(queue, action_id)).body


async def test_a_pause_says_what_waits_until_when_and_ends_by_itself(counter: Counter, mails: Queue) -> None:
    fill(mails, "acme", 1200)
    jonas = counter.visitor()
    asked = await jonas.ask("pause", queue="mails", shard_key="acme", seconds="900")
    assert asked["title"] == "Pause acme in mails"
    assert "Its 1,200 messages wait until " in asked.text
    assert "Nobody else waits longer." in asked.text
    assert mails.paused() == {}
    done = await jonas.act("pause", asked["ticket"], note="ticket 812")
    assert done["said"] == "acme in mails is paused for 15 minutes."
    control = mails.controls().paused["acme"]
    assert 890 < control.until - mails.stats().time <= 900
    assert (control.by, control.note) == ("jonas", "ticket 812")
    assert events(mails, "paused") == [("jonas", "ticket 812")]
    again = await jonas.ask("pause", queue="mails", shard_key="acme")
    assert "jonas paused it at " in again.text
    assert "(ticket 812): this takes the place of that." in again.text


async def test_a_pause_of_the_whole_queue_says_that_all_wait(counter: Counter, mails: Queue) -> None:
    fill(mails, "acme", 3)
    mails.read()
    asked = await counter.visitor().ask("pause", queue="mails", seconds="")
    assert "It is the whole queue: 2 messages of all tenants wait until somebody ends it." in asked.text
    assert "1 message in flight continues, and so do writes." in asked.text
    assert "A pause without an end is easily forgotten." in asked.text
    assert (await counter.visitor().act("pause", asked["ticket"]))["said"] == "mails is paused until somebody ends it."
    assert mails.paused() == {None: math.inf}


async def test_a_pause_is_ended(counter: Counter, mails: Queue) -> None:
    fill(mails, "acme", 2)
    jonas = counter.visitor()
    none = await jonas.ask("resume", queue="mails", shard_key="acme")
    assert (none["possible"], none.text) == (False, "It is not paused.")
    assert "ticket" not in none.body
    mails.pause("acme", by="mia", note="flood")
    asked = await jonas.ask("resume", queue="mails", shard_key="acme")
    assert "mia paused it at " in asked.text
    assert "without an end (flood)." in asked.text
    assert "Its 2 messages can be delivered at once." in asked.text
    assert "No worker reads the queue." in asked.text
    assert (await jonas.act("resume", asked["ticket"]))["said"] == "acme in mails goes on."
    assert mails.paused() == {}
    assert events(mails, "resumed") == [("jonas", "")]


async def test_a_tenant_under_a_paused_queue_is_told_so(counter: Counter, mails: Queue) -> None:
    fill(mails, "acme", 1)
    mails.pause(by="mia")
    asked = await counter.visitor().ask("resume", queue="mails", shard_key="acme")
    assert "It is not paused by itself: the whole queue is. mia paused it" in asked.text


async def test_limits_are_given_for_a_while_and_taken_back(counter: Counter, mails: Queue) -> None:
    fill(mails, "acme", 5)
    jonas = counter.visitor()
    asked = await jonas.ask("limit", queue="mails", shard_key="acme")
    assert "Now it may have any number. Say how many a second, or how many at once." in asked.text
    nothing = await jonas.act("limit", asked["ticket"])
    assert (nothing.status, nothing.text) == (
        400, "Say how many deliveries a second, or how many messages in flight at once.",
    )  # fmt: skip
    asked = await jonas.ask("limit", queue="mails", shard_key="acme", rate="10", max_in_flight="3", seconds="3600")
    assert "At most 10 a second and 3 in flight, until " in asked.text
    assert (await jonas.act("limit", asked["ticket"]))["said"] == "acme in mails is limited for 1 hour."
    control = mails.controls().limits["acme"]
    assert (control.limits, control.by) == (Limits(rate=10, max_in_flight=3), "jonas")
    assert 3590 < control.until - mails.stats().time <= 3600
    asked = await jonas.ask("limit", queue="mails", shard_key="acme")
    values = {each["name"]: each["value"] for each in asked["fields"]}
    assert (values["rate"], values["max_in_flight"]) == ("10", "3")
    assert "Now it may have 10 a second and 3 in flight (jonas, until " in asked.text
    asked = await jonas.ask("limit", queue="mails", shard_key="acme", rate="", max_in_flight="")
    assert "Its own limits are gone then." in asked.text
    assert (await jonas.act("limit", asked["ticket"]))["said"] == "acme in mails has no limits of its own."
    assert mails.limits() == {}


async def test_a_tenant_is_put_on_a_plan(counter: Counter, mails: Queue) -> None:
    jonas = counter.visitor()
    none = await jonas.ask("plan", queue="mails", shard_key="acme")
    assert (none["possible"], none.text[:24]) == (False, "The queue has no plans: ")
    mails.set_plan("gold", rate=50, weight=3)
    asked = await jonas.ask("plan", queue="mails", shard_key="acme", plan="gold")
    assert "On gold without an end: 50 a second, weight 3; 0 tenants are on it now." in asked.text
    assert ["gold", "gold: 50 a second, weight 3"] in asked["fields"][0]["choices"]
    assert (await jonas.act("plan", asked["ticket"]))["said"] == "acme in mails is on plan gold without an end."
    assert mails.limits() == {"acme": "gold"}
    gone = await jonas.ask("plan", queue="mails", shard_key="acme", plan="silver")
    assert (gone.status, gone.text) == (400, "There is no plan silver any more.")


async def test_a_plan_that_changed_meanwhile_is_told(counter: Counter, mails: Queue) -> None:
    mails.set_plan("gold", rate=50)
    jonas = counter.visitor()
    asked = await jonas.ask("plan", queue="mails", shard_key="acme", plan="gold")
    mails.set_plan("gold", rate=1)
    told = await jonas.act("plan", asked["ticket"])
    assert (told.status, told.text) == (
        409, "Nothing was done yet: the plan is 1 a second, weight 1 by now. Look at what it does now.",
    )  # fmt: skip
    assert mails.limits() == {}
    assert "1 a second, weight 1;" in str(told["ask"]["lines"])
    assert (await jonas.act("plan", told["ask"]["ticket"])).status == 200
    assert mails.limits() == {"acme": "gold"}


async def test_a_weight_is_given(counter: Counter, mails: Queue) -> None:
    jonas = counter.visitor()
    asked = await jonas.ask("weight", queue="mails", shard_key="acme", weight="5", seconds="3600")
    assert "Its weight is 1. While others wait, it has 5 times the share of one of weight 1, until " in asked.text
    assert (await jonas.act("weight", asked["ticket"]))["said"] == "acme in mails has weight 5 for 1 hour."
    assert mails.weights() == {"acme": 5}
    assert mails.controls().weights["acme"].by == "jonas"
    assert (await jonas.ask("weight", queue="mails", shard_key="acme", weight="101")).status == 400
    asked = await jonas.ask("weight", queue="mails", shard_key="acme", weight="1")
    assert (await jonas.act("weight", asked["ticket"]))["said"] == "acme in mails has weight 1."
    assert mails.weights() == {}


async def test_a_purge_counts_and_wants_the_name_typed(counter: Counter, mails: Queue) -> None:
    bury(mails, "acme", 4)
    fill(mails, "acme", 20)
    fill(mails, "bolt", 5)
    mails.write(1, shard_key="acme", delay=600)
    ada = counter.visitor("ada")
    asked = await ada.ask("purge", queue="mails", shard_key="acme")
    assert "25 messages are gone for good: 20 waiting, 1 delayed, 4 dead letters." in asked.text
    assert "This cannot be undone." in asked.text
    assert asked["danger"] == "acme"
    wrong = await ada.act("purge", asked["ticket"], typed="acm")
    assert (wrong.status, wrong.text) == (400, "Type acme to continue: nothing was done.")
    assert mails.stats().backlog == 25
    done = await ada.act("purge", asked["ticket"], typed="acme", note="left us")
    assert done["said"] == "Removed of acme: 20 waiting, 1 delayed, 4 dead letters."
    assert (mails.stats().backlog, mails.stats().dead, mails.stats().delayed) == (5, 0, 0)
    assert set(events(mails, "purged")) == {("ada", "left us")}


async def test_a_purge_that_would_take_more_than_was_said_is_not_done(counter: Counter, mails: Queue) -> None:
    fill(mails, "acme", 20)
    ada = counter.visitor("ada")
    asked = await ada.ask("purge", queue="mails", shard_key="acme")
    fill(mails, "acme", 60)
    told = await ada.act("purge", asked["ticket"], typed="acme")
    assert (told.status, told.text) == (409, "Nothing was done yet: 80 are waiting by now, and not 20 messages.")
    assert mails.stats().backlog == 80
    assert (await ada.act("purge", asked["ticket"], typed="acme")).status == 409  # the ticket is used
    assert (await ada.act("purge", told["ask"]["ticket"], typed="acme")).status == 200
    assert mails.stats().backlog == 0


async def test_dead_letters_are_redriven_at_a_rate(counter: Counter, mails: Queue) -> None:
    bury(mails, "acme", 120)
    bury(mails, "acme", 3, ValueError("bad"))
    jonas = counter.visitor()
    asked = await jonas.ask("redrive", queue="mails", error="TimeoutError", rate="50")
    assert asked["title"] == "Redrive: 120 dead letters of mails"
    assert "It is about those with error TimeoutError." in asked.text
    assert "It takes 2.4 s at 50/s." in asked.text
    assert "of this kind failed in the last 10 minutes: they may fail again." in asked.text
    assert asked["danger"] == ""
    asked = await jonas.ask("redrive", queue="mails", error="TimeoutError", rate="")
    done = await jonas.act("redrive", asked["ticket"], note="it is back")
    assert done["said"] == "Redrive: 120 dead letters of mails, under way."
    status = await settled(counter, "mails", done["handle"])
    assert (status["state"], status["done"], status["by"], status["note"]) == ("done", 120, "jonas", "it is back")
    assert status["line"] == "120 redriven, done"
    assert (mails.stats().dead, mails.stats().backlog) == (3, 120)
    assert set(events(mails, "redriven")) == {("jonas", "it is back")}


async def test_no_more_is_acted_on_than_was_said(counter: Counter, mails: Queue) -> None:
    bury(mails, "acme", 10)
    ada = counter.visitor("ada")
    asked = await ada.ask("delete", queue="mails", shard_key="acme")
    assert "They are gone for good, with their payloads. This cannot be undone." in asked.text
    late = bury(mails, "acme", 2)
    done = await ada.act("delete", asked["ticket"], typed="acme")
    left = "2 more have come since the dialog was opened, and stay."
    assert done["said"] == f"Delete: 10 dead letters of mails, under way. {left}"
    assert (await settled(counter, "mails", done["handle"]))["done"] == 10
    assert [each.message_id for each in mails.dead()] == late
    assert set(events(mails, "deleted")) == {("ada", "")}


async def test_what_waits_for_its_next_try_is_tried_now(counter: Counter, mails: Queue) -> None:
    fail(mails, "acme", 7)
    jonas = counter.visitor()
    asked = await jonas.ask("retry_now", queue="mails", task="mail.send", rate="")
    assert asked["title"] == "Try now: 7 messages that wait for their next try of mails"
    done = await jonas.act("retry_now", asked["ticket"])
    assert (await settled(counter, "mails", done["handle"]))["done"] == 7
    assert len(mails.read_many(10)) == 7
    assert set(events(mails, "hastened")) == {("jonas", "")}


async def test_messages_are_cancelled_by_a_filter(counter: Counter, mails: Queue) -> None:
    fill(mails, "acme", 6)
    fill(mails, "bolt", 6)
    ada = counter.visitor("ada")
    assert (await ada.ask("cancel", queue="mails")).status == 400  # a filter that says nothing is about all
    asked = await ada.ask("cancel", queue="mails", shard_key="acme", state="waiting")
    done = await ada.act("cancel", asked["ticket"], typed="acme")
    assert (await settled(counter, "mails", done["handle"]))["done"] == 6
    assert {each.shard_key for each in mails.read_many(20)} == {"bolt"}
    assert set(events(mails, "cancelled")) == {("ada", "")}


async def test_an_action_about_nothing_cannot_be_begun(counter: Counter, mails: Queue) -> None:
    none = await counter.visitor().ask("redrive", queue="mails")
    assert (none["possible"], none.text) == (False, "It is about all of them. There are none.")


async def test_one_message_is_cancelled_without_the_role_for_many(counter: Counter, mails: Queue) -> None:
    first, second = fill(mails, "acme", 2)
    jonas = counter.visitor()
    asked = await jonas.ask("cancel", queue="mails", message_id=first)
    assert "It waits for its turn, of acme. It calls mail.send." in asked.text
    assert (await jonas.act("cancel", asked["ticket"], note="wrong"))["said"] == "It is removed."
    assert [each.message_id for each in mails.read_many(10)] == [second]
    assert events(mails, "cancelled") == [("jonas", "wrong")]
    gone = await jonas.ask("cancel", queue="mails", message_id=first)
    assert (gone.status, gone.text) == (404, "There is no such message any more: it is done, or was removed.")
    asked = await jonas.ask("cancel", queue="mails", message_id=second)
    assert "Its holder learns of it when it next extends or acks" in asked.text


async def test_a_message_that_is_read_meanwhile_is_told_before_it_is_cancelled(counter: Counter, mails: Queue) -> None:
    (first,) = fill(mails, "acme", 1)
    jonas = counter.visitor()
    asked = await jonas.ask("cancel", queue="mails", message_id=first)
    delivery = mails.read()
    told = await jonas.act("cancel", asked["ticket"])
    assert (told.status, told.text[:48]) == (409, "Nothing was done yet: the message has changed me")
    delivery.ack()


async def test_a_message_with_the_longest_shard_key_is_cancelled(counter: Counter, mails: Queue) -> None:
    """Of one that is held back the shard key is a part of its id."""
    ids = fill(mails, "é" * 512, 50)
    assert len(ids[-1]) > 3000
    done = await counter.visitor().do("cancel", queue="mails", message_id=ids[-1])
    assert (done.status, done["said"]) == (200, "It is removed.")


async def test_one_dead_letter_is_redriven_or_deleted(counter: Counter, mails: Queue) -> None:
    first, second, third = bury(mails, "acme", 3)
    jonas, ada = counter.visitor(), counter.visitor("ada")
    asked = await jonas.ask("redrive", queue="mails", message_id=second)
    assert "A dead letter of acme, 1 delivery so far. It calls mail.send." in asked.text
    assert (await jonas.act("redrive", asked["ticket"]))["said"] == "It waits for its turn again."
    assert mails.read().message_id == second
    assert (await jonas.ask("delete", queue="mails", message_id=third)).status == 403
    assert (await ada.do("delete", queue="mails", message_id=third, typed="mails"))["said"] == "It is deleted."
    assert [each.message_id for each in mails.dead()] == [first]
    gone = await jonas.ask("redrive", queue="mails", message_id=second)
    assert (gone.status, gone.text) == (404, "It is no dead letter any more.")


async def test_one_message_is_tried_now_and_no_other(counter: Counter, mails: Queue) -> None:
    _, second, _ = fail(mails, "acme", 3)
    jonas = counter.visitor()
    asked = await jonas.ask("retry_now", queue="mails", message_id=second)
    assert "It failed with TimeoutError." in asked.text
    assert (await jonas.act("retry_now", asked["ticket"]))["said"] == "It can be delivered now."
    assert [each.message_id for each in mails.read_many(10)] == [second]
    assert events(mails, "hastened") == [("jonas", "")]


async def test_a_schedule_runs_now_beside_its_times(counter: Counter, client: Client) -> None:
    reports = at.open_queue(client, "reports", max_schedules=10)
    reports.schedules.add("daily", at.call("app.report"), shard_key="acme", every=86_400)
    jonas = counter.visitor()
    asked = await jonas.ask("run_now", queue="reports", schedule="daily")
    assert "One message is written now: app.report, of acme." in asked.text
    assert "stays as it is: it runs twice then." in asked.text
    done = await jonas.act("run_now", asked["ticket"], note="for the audit")
    assert done["said"] == f"Written: message {reports.read().message_id}."
    assert events(reports, "written") == [("jonas", "for the audit")]
    gone = await jonas.ask("run_now", queue="reports", schedule="weekly")
    assert (gone.status, gone.text) == (404, "There is no schedule weekly any more.")


async def test_an_action_of_another_is_stopped(counter: Counter, mails: Queue) -> None:
    bury(mails, "acme", 30)
    action = mails.redrive(Where(state="dead"), rate=10, by="mia")
    action.wait(0.3)
    jonas = counter.visitor()
    busy = await jonas.ask("redrive", queue="mails")
    assert busy["possible"] is False
    assert "mia has another action under way on this queue" in busy.text
    asked = await jonas.ask("stop", queue="mails", id=action.id)
    assert asked["title"] == "Stop the redrive of mia in mails"
    assert "Messages that are done stay done; all others stay." in asked.text
    assert (await jonas.act("stop", asked["ticket"]))["said"] == "The redrive stops with its next piece."
    assert action.wait().state == "stopped"
    assert events(mails, "stopped") == [("jonas", "")]
    over = await jonas.ask("stop", queue="mails", id=action.id)
    assert (over["possible"], over.text) == (False, "It is over: stopped.")


@pytest.mark.parametrize("args", [
    {"queue": "a b"}, {"queue": ""}, {"queue": "x" * 201}, {"queue": "mails", "shard_key": "k" * 1025},
    {"queue": "mails", "shard_key": "a", "seconds": "1"}, {"queue": "mails", "shard_key": "a", "color": "red"},
    {"queue": "mails", "shard_key": "é" * 1000}, {"queue": "mails", "shard_key_base64": "%%%"},
])  # fmt: skip
async def test_bad_arguments_are_refused_in_words(counter: Counter, mails: Queue, args: dict[str, str]) -> None:
    refused = await counter.visitor().ask("pause", **args)
    assert refused.status == 400
    assert refused.text.endswith(".")


async def test_a_queue_that_is_not_there_is_no_new_queue(counter: Counter, mails: Queue) -> None:
    for action in ("pause", "limit", "redrive", "retry_now"):
        gone = await counter.visitor().ask(action, queue="nails", shard_key="acme")
        assert gone.status == 404
        assert "nails" in gone.text
    assert await counter.client.queues() == ["mails"]


async def test_a_tenant_that_is_no_text_is_acted_on(counter: Counter, mails: Queue) -> None:
    mails.write(1, shard_key=b"\xff\xfe")
    jonas = counter.visitor()
    asked = await jonas.ask("pause", queue="mails", shard_key_base64="//4=")
    assert asked["title"] == r"Pause \xff\xfe in mails"
    assert (await jonas.act("pause", asked["ticket"])).status == 200
    assert list(mails.paused()) == [b"\xff\xfe"]
