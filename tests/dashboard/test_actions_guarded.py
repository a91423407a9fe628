"""Who may act, and by which ticket: nothing is done that a person was not told, may not do, or did already."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from typing import NoReturn

import pytest

from shardq import Client, Queue
from shardq.clock import SystemClock
from shardq.dashboard import Person, Role
from shardq.dashboard.actions import allowed
from shardq.dashboard.actions.dialog import DialogText
from shardq.dashboard.actions.given import Given
from shardq.dashboard.actions.pauses import PAUSE, RESUME
from shardq.dashboard.actions.refused import REFUSED_BY_REDIS, refusal_of
from shardq.dashboard.actions.routes import NOTHING_DONE_YET
from shardq.dashboard.actions.table import ACTIONS_OF_ONE, TABLE
from shardq.dashboard.actions.tickets import MAX_TICKETS, MAX_TICKETS_A_PERSON, VALID, Tickets
from shardq.errors import (
    BackendError,
    BackendTimeout,
    ClosedError,
    LeaseLost,
    OutcomeUnknown,
    OutOfMemory,
    PartlyDone,
    ServerUnfit,
    ShardqError,
)
from shardq.ops.operate import limits
from shardq.ops.queue.change import Changed
from shardq.testing import ManualClock
from tests.dashboard import counter as at
from tests.dashboard.counter import PEOPLE, Counter, fill
from tests.servers import Server

pytestmark = pytest.mark.once
ABOUT = {"queue": "mails", "shard_key": "acme"}


@pytest.fixture
def mails(server: Server) -> Iterator[Queue]:
    with Client.from_url(server.url, name="writer") as client:
        yield at.open_queue(client, "mails")


@pytest.fixture
async def counter(server: Server) -> AsyncIterator[Counter]:
    async with at.counter(server.url) as found:
        yield found


@pytest.mark.parametrize("action", sorted(TABLE))
async def test_a_viewer_can_do_nothing(counter: Counter, mails: Queue, action: str) -> None:
    vera = counter.visitor("vera")
    asked = await vera.ask(action, **ABOUT)
    role = TABLE[action].role.name.lower()
    assert (asked.status, asked.text) == (403, f"This is for people with the role {role}.")


def test_what_removes_many_messages_is_for_admins() -> None:
    removes = {"purge", "delete", "cancel"}
    assert {name for name, each in TABLE.items() if each.role is Role.ADMIN} == removes
    assert {name for name, each in ACTIONS_OF_ONE.items() if each.role is Role.ADMIN} == {"delete"}
    assert {name for name, each in {**TABLE, **ACTIONS_OF_ONE}.items() if each.is_bad} >= removes
    assert allowed(Person("vera", Role.VIEW)) == []
    assert set(allowed(Person("ada", Role.ADMIN))) == {*TABLE, *(f"{each} one" for each in ACTIONS_OF_ONE)}


async def test_a_ticket_is_used_once(counter: Counter, mails: Queue) -> None:
    jonas = counter.visitor()
    ticket = (await jonas.ask("pause", **ABOUT))["ticket"]
    assert (await jonas.act("pause", ticket)).status == 200
    mails.resume("acme")
    again = await jonas.act("pause", ticket)
    over = "This dialog is over, or was used already. Open it again: nothing was done."
    assert (again.status, again.text) == (409, over)
    assert mails.paused() == {}


async def test_of_many_who_send_one_ticket_at_once_one_acts(counter: Counter, mails: Queue) -> None:
    ids = fill(mails, "acme", 1)
    jonas = counter.visitor()
    ticket = (await jonas.ask("cancel", queue="mails", message_id=ids[0]))["ticket"]
    found = await asyncio.gather(*(jonas.act("cancel", ticket) for _ in range(20)))
    assert sorted(each.status for each in found) == [200] + [409] * 19


@pytest.mark.parametrize(
    ("action", "args", "what"),
    [
        ("pause", {"seconds": "300"}, "{} has paused it meanwhile, for a while"),
        ("pause", {"shard_key": "acme", "seconds": ""}, "{} has paused it meanwhile, without an end"),
        ("resume", {"shard_key": "paused"}, ""),
        ("limit", {"shard_key": "acme", "rate": "5"}, "{} has limited it to 5 a second meanwhile"),
        ("plan", {"shard_key": "acme", "plan": "gold"}, "{} has put it on the plan gold meanwhile"),
        ("weight", {"shard_key": "acme", "weight": "7"}, "{} has given it the weight 7 meanwhile"),
    ],
)
async def test_of_many_who_do_it_in_one_moment_one_does_it_and_the_others_hear_who(
    counter: Counter, mails: Queue, action: str, args: dict[str, str], what: str
) -> None:
    """What each was told holds until it is done: nobody takes a pause away of which the dialog did not say a word."""
    mails.set_plan("gold", rate=50)
    mails.pause("paused")
    fill(mails, "acme", 1)
    visitors = {name: counter.visitor(name) for name in ("jonas", "axel", "ada")}
    tickets = {name: (await each.ask(action, queue="mails", **args))["ticket"] for name, each in visitors.items()}
    acts = (each.act(action, tickets[name]) for name, each in visitors.items())
    found = dict(zip(visitors, await asyncio.gather(*acts), strict=True))
    (first,) = (name for name, each in found.items() if each.status == 200)
    for name in visitors.keys() - {first}:
        assert found[name].status == 409
        if what:
            told = f"Nothing was done yet: {what.format(first)}. Look at what it does now."
            assert (found[name].text, found[name]["ask"]["possible"]) == (told, True)
        else:
            assert found[name].text == "Nothing was done: It is not paused."
    assert [each.by for each in mails.journal(100).events if each.by in visitors] == [first]


async def test_what_was_changed_and_changed_back_is_told(
    counter: Counter, mails: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changes(*_: object, **_named: object) -> NoReturn:
        raise Changed

    jonas = counter.visitor()
    ticket = (await jonas.ask("pause", **ABOUT))["ticket"]
    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(limits, "pause", changes)
        told = await jonas.act("pause", ticket)
    assert (told.status, told.text) == (409, NOTHING_DONE_YET)
    assert (await jonas.act("pause", told["ask"]["ticket"])).status == 200


async def test_a_ticket_is_of_one_person_and_one_action(counter: Counter, mails: Queue) -> None:
    jonas, axel, ada = (counter.visitor(name) for name in ("jonas", "axel", "ada"))
    ticket = (await jonas.ask("pause", **ABOUT))["ticket"]
    for visitor, action in ((axel, "pause"), (ada, "pause"), (jonas, "resume"), (jonas, "purge"), (ada, "purge")):
        assert (await visitor.act(action, ticket)).status == 409
    assert mails.paused() == {}
    assert (await jonas.act("pause", ticket)).status == 200  # nobody else has used it up


async def test_who_lost_the_role_meanwhile_cannot_act(
    counter: Counter, mails: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    jonas = counter.visitor()
    ticket = (await jonas.ask("pause", **ABOUT))["ticket"]
    monkeypatch.setitem(PEOPLE, "jonas", Role.VIEW)
    assert (await jonas.act("pause", ticket)).status == 403
    assert mails.paused() == {}


@pytest.mark.parametrize("ticket", ["", "x", "A" * 32, "x" * 7000, "../../etc/passwd", "\x00"])
async def test_a_forged_ticket_is_refused_and_told_in_the_log(
    counter: Counter, mails: Queue, ticket: str, caplog: pytest.LogCaptureFixture
) -> None:
    await counter.visitor().ask("pause", **ABOUT)
    with caplog.at_level(logging.WARNING, "shardq.dashboard"):
        assert (await counter.visitor().act("pause", ticket)).status == 409
    assert "refused 'POST /act/pause' of jonas: no such ticket" in caplog.text


async def test_other_fields_than_those_that_were_told_are_refused(counter: Counter, mails: Queue) -> None:
    jonas = counter.visitor()
    asked = await jonas.ask("pause", **ABOUT, seconds="300")
    refused = await jonas.act("pause", asked["ticket"], seconds="604800")
    assert (refused.status, refused.text) == (409, "You chose otherwise meanwhile: look at what it does now.")
    assert mails.paused() == {}
    assert (await jonas.act("pause", asked["ticket"], seconds="300")).status == 200


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b"null", b'{"ticket": 1}', b'{"ticket": "a", "fields": {"seconds": 5}}', b"\xff\xfe",
    b'{"ticket": "a", "fields": [], "more": 1}', b'{"ticket": "a", "queue": "mails"}', b"[" * 5000,
])  # fmt: skip
async def test_what_is_no_action_is_refused(counter: Counter, mails: Queue, body: bytes) -> None:
    refused = await counter.visitor().post("/act/pause", body)
    assert (refused.status, refused.text) == (400, "The request is no action.")


async def test_much_is_refused(counter: Counter, mails: Queue) -> None:
    refused = await counter.visitor().post("/act/pause", b'{"ticket": "' + b"x" * 9000 + b'"}')
    assert (refused.status, refused.text) == (413, "Too much was sent.")
    assert (await counter.visitor().ask("pause", **{f"a{n}": "" for n in range(21)})).status == 400


async def test_a_note_is_one_line(counter: Counter, mails: Queue) -> None:
    jonas = counter.visitor()
    ticket = (await jonas.ask("pause", **ABOUT))["ticket"]
    for note in ("two\nlines", "x" * 201, "bell\x07"):
        refused = await jonas.act("pause", ticket, note=note)
        assert (refused.status, refused.text[:18]) == (400, "Why must be a line")
    assert mails.paused() == {}
    assert (await jonas.act("pause", ticket, note="fine")).status == 200


async def test_an_unknown_action_is_not_there(counter: Counter, mails: Queue) -> None:
    assert (await counter.visitor("ada").ask("drop_all", **ABOUT)).status == 404
    assert (await counter.visitor("ada").act("drop_all", "x")).status == 409


async def test_what_was_done_is_in_the_log_with_the_person(
    counter: Counter, mails: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "shardq.dashboard"):
        await counter.visitor().do("pause", **ABOUT)
    assert "jonas (act) did pause of queue mails, tenant 'acme'" in caplog.text


async def test_what_may_have_been_done_is_in_the_log_with_the_person(
    counter: Counter, mails: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def lost(*_: object, **_named: object) -> NoReturn:
        raise OutcomeUnknown("no answer came")

    monkeypatch.setattr(limits, "pause", lost)
    assert (await counter.visitor().do("pause", **ABOUT)).status == 503
    assert "jonas (act) tried pause of queue mails, tenant 'acme': no answer came" in caplog.text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (BackendError("Redis refused the call: ERR 10.1.2.3 of ops"), REFUSED_BY_REDIS),
        (
            BackendTimeout("no answer from 10.1.2.3 after 5 tries"),
            "Redis did not answer in time, and nothing was done.",
        ),
        (OutcomeUnknown("no answer from 10.1.2.3"), "No answer came: it may have been done, or not."),
        (PartlyDone("purged 3, then no answer from 10.1.2.3", 3), "It was done in part (3 so far)."),
        (OutOfMemory("10.1.2.3 is full"), "Redis is full, so nothing was done"),
        (ServerUnfit("10.1.2.3 is old"), REFUSED_BY_REDIS),
        (ClosedError("the client of 10.1.2.3 was closed"), "The page has ended, and nothing was done."),
        (LeaseLost("10.1.2.3 lost it"), REFUSED_BY_REDIS),
    ],
)
def test_what_redis_says_is_not_told_to_people(error: ShardqError, text: str) -> None:
    told = refusal_of(error)
    assert told.text.startswith(text)
    assert "10.1.2.3" not in told.text
    assert told.status == 503


async def test_a_dialog_that_fails_says_no_more_than_that_and_the_log_says_why(
    counter: Counter, mails: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: object, **_named: object) -> NoReturn:
        raise BackendError("Redis refused the call: ERR 10.1.2.3 of ops")

    monkeypatch.setattr("shardq.ops.operate.controls.controls", refused)
    asked = await counter.visitor().ask("pause", **ABOUT)
    assert (asked.status, asked.text) == (503, REFUSED_BY_REDIS)
    assert "refused 'GET /ask/pause' of jonas: Redis refused the call: ERR 10.1.2.3 of ops" in caplog.text


def test_tickets_end_and_are_bounded() -> None:
    clock = ManualClock()
    tickets, said = Tickets(clock), DialogText("Pause", "Pause", [])
    jonas, mia = Person("jonas", Role.ACT), Person("mia", Role.ACT)
    mine = tickets.issue(mia, PAUSE, Given("mails"), {}, said)
    many = [tickets.issue(jonas, PAUSE, Given("mails"), {}, said) for _ in range(500)]
    assert len(tickets) == MAX_TICKETS_A_PERSON + 1
    assert tickets.look(many[0], jonas, "pause") is None
    assert tickets.look(many[-1], jonas, "pause") is not None
    assert tickets.look(mine, mia, "pause") is not None  # nobody takes the ticket of another away
    for number in range(MAX_TICKETS):
        tickets.issue(Person(f"p{number}", Role.ACT), RESUME, Given("mails"), {}, said)
    assert len(tickets) == MAX_TICKETS
    last = tickets.issue(mia, PAUSE, Given("mails"), {}, said)
    clock.advance(VALID - 0.001)
    assert tickets.look(last, mia, "pause") is not None
    clock.advance(0.001)
    assert tickets.look(last, mia, "pause") is None
    tickets.issue(mia, PAUSE, Given("mails"), {}, said)
    assert len(tickets) == 1


def test_tickets_cannot_be_guessed() -> None:
    tickets, said = Tickets(SystemClock()), DialogText("Pause", "Pause", [])
    found = {tickets.issue(Person(str(n), Role.ACT), PAUSE, Given("mails"), {}, said) for n in range(1000)}
    assert len(found) == 1000
    assert {len(each) for each in found} == {32}
