"""What takes long goes on: while Redis is away, after the page's process has ended, and until somebody stops it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from shardq import Client, Queue, Where
from shardq.client.async_action import AsyncAction
from shardq.dashboard.actions import actions_of
from shardq.dashboard.actions.handles import MAX_STOPS
from shardq.dashboard.actions.refused import MAY_HAVE_BEGUN
from shardq.errors import BackendTimeout, OutcomeUnknown
from shardq.ops.operate import actions
from tests.dashboard import counter as at
from tests.dashboard.counter import bury, events, fail
from tests.servers import Server

pytestmark = pytest.mark.once


@pytest.fixture
def mails(server: Server) -> Iterator[Queue]:
    with Client.from_url(server.url, name="writer") as client:
        yield at.open_queue(client, "mails")


def silence(server: Server, queue: Queue, action_id: str, seconds: float = 31) -> None:
    """As if the process of an action had said nothing for half a minute."""
    with server.client() as raw:
        text = raw.hget(queue.state.keys.actions, action_id)
        assert text is not None
        head, _, rest = text.partition(b"\n")
        words = head.split(b" ")
        words[2] = b"%d" % (int(words[2]) - int(seconds * 1000))
        raw.hset(queue.state.keys.actions, action_id, b" ".join(words) + b"\n" + rest)


async def soon(condition: Callable[[], Awaitable[Any]]) -> Any:
    """What *condition* returns once that is true."""
    async with asyncio.timeout(30):
        while True:
            if found := await condition():
                return found
            await asyncio.sleep(0.01)


async def begun(counter: at.Counter, rate: str) -> str:
    """The id of a redrive that a person began on the page."""
    done = await counter.visitor().do("redrive", queue="mails", rate=rate)
    assert done.status == 200, done.text
    return str(done["handle"])


async def test_the_page_shows_how_far_an_action_is(server: Server, mails: Queue) -> None:
    bury(mails, "acme", 40)
    async with at.counter(server.url) as counter:
        handle = await begun(counter, "1")

        async def goes() -> Any:
            found = (await counter.visitor("vera").handle("mails", handle)).body
            return found if found["done"] and found["total"] else None

        status = await soon(goes)
        assert (status["total"], status["by"], status["what"], status["live"]) == (40, "jonas", "redrive", True)
        assert status["line"].startswith(f"{status['done']} of 40 redriven, 1/s, ")
        assert (await counter.visitor().do("stop", queue="mails", id=handle)).status == 200
        await counter.handles.quiet()
        status = (await counter.visitor().handle("mails", handle)).body
        assert (status["state"], status["live"], status["goes_on"]) == ("stopped", False, True)
        stopped_at = status["done"]
        assert 0 < stopped_at < 40
        assert mails.stats().dead == 40 - stopped_at
        assert (await counter.visitor().do("go_on", queue="mails", id=handle))["said"] == "The redrive goes on."
        assert await _is(counter, "mails", handle, "running")
        mails.stop_action(handle)
        await counter.handles.quiet()
    assert mails.stats().dead + mails.stats().backlog == 40
    assert len(events(mails, "redriven")) == mails.stats().backlog >= stopped_at


def lose_the_answer(monkeypatch: pytest.MonkeyPatch, *, is_begun: bool) -> None:
    """Let no answer come to the call that begins an action."""
    real = actions.begin

    def lost(*args: Any) -> Any:
        if is_begun:
            yield from real(*args)
        raise OutcomeUnknown("no answer from 10.1.2.3 after 5 tries")

    monkeypatch.setattr(actions, "begin", lost)


async def test_an_action_of_which_nobody_heard_whether_it_began_goes_on(
    server: Server, mails: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The person finds it on Failures, and need not do anything."""
    bury(mails, "acme", 3)
    monkeypatch.setattr("shardq.dashboard.actions.handles.GLANCE", 0.05)
    async with at.counter(server.url) as counter:
        with monkeypatch.context() as meanwhile:
            lose_the_answer(meanwhile, is_begun=True)
            told = await counter.visitor().do("redrive", queue="mails")
        assert (told.status, told.text) == (503, MAY_HAVE_BEGUN)
        (begun,) = await actions_of(counter.page.state.source, "mails")
        assert (begun["by"], begun["state"], begun["done"]) == ("jonas", "running", 0)
        silence(server, mails, begun["id"])
        await counter.handles.quiet()
    assert [(each.state, each.done, each.by) for each in mails.actions()] == [("done", 3, "jonas")]


async def test_an_action_that_perhaps_began_goes_on_also_if_redis_was_away_again(
    server: Server, mails: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks at the page, so nobody else would go on with it."""
    bury(mails, "acme", 3)
    monkeypatch.setattr("shardq.dashboard.actions.handles.GLANCE", 0.05)
    real, tries = actions.take_over, 0

    def take_over(*args: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise BackendTimeout("no answer after 5 tries")
        return (yield from real(*args))

    async with at.counter(server.url) as counter:
        with monkeypatch.context() as meanwhile:
            lose_the_answer(meanwhile, is_begun=True)
            assert (await counter.visitor().do("redrive", queue="mails")).status == 503
        monkeypatch.setattr(actions, "take_over", take_over)
        silence(server, mails, mails.actions()[0].id)
        await counter.handles.quiet()
    assert [(each.state, each.done) for each in mails.actions()] == [("done", 3)]


async def test_an_action_that_did_not_begin_is_not_looked_for_for_ever(
    server: Server, mails: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(mails, "acme", 3)
    monkeypatch.setattr("shardq.dashboard.actions.handles.GLANCE", 0.01)
    monkeypatch.setattr("shardq.dashboard.actions.handles.MAX_LOOKS", 3)
    lose_the_answer(monkeypatch, is_begun=False)
    async with at.counter(server.url) as counter:
        assert (await counter.visitor().do("redrive", queue="mails")).status == 503
        await counter.handles.quiet()
    assert (mails.actions(), mails.stats().dead) == ([], 3)


async def test_a_try_of_one_message_of_which_nobody_heard_whether_it_began_is_in_nobodys_way(
    server: Server, mails: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    (failed,) = fail(mails, "acme", 1)
    lose_the_answer(monkeypatch, is_begun=True)
    async with at.counter(server.url) as counter:
        told = await counter.visitor().do("retry_now", queue="mails", message_id=failed)
        assert (told.status, told.text[:56]) == (503, "No answer came: it may have been done, or not. Look befo")
        await counter.handles.quiet()
    (begun,) = mails.actions()
    assert begun.state == "stopping"
    silence(server, mails, begun.id)
    assert [each.state for each in mails.actions()] == ["stopped"]


@pytest.fixture
def denied(server: Server) -> Iterator[tuple[str, Callable[[], object]]]:
    """Where the server is for a user, and what takes away that user's right to call functions."""
    server.run("ACL", "SETUSER", "page", "reset", "on", "nopass", "~*", "&*", "+@all")
    yield (
        server.url.replace("unix://", "unix://page:any@"),
        lambda: server.run("ACL", "SETUSER", "page", "-fcall", "-fcall_ro", "-eval", "-evalsha", "-evalsha_ro"),
    )
    server.run("ACL", "DELUSER", "page")


async def test_a_try_that_may_not_be_stopped_is_left_and_told(
    mails: Queue,
    denied: tuple[str, Callable[[], object]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (failed,) = fail(mails, "acme", 1)
    url, deny = denied

    async def lost(action: AsyncAction, timeout: float | None = None) -> None:
        deny()
        raise BackendTimeout("no answer")

    monkeypatch.setattr(AsyncAction, "wait", lost)
    async with at.counter(url) as counter:
        assert (await counter.visitor().do("retry_now", queue="mails", message_id=failed)).status == 503
        await counter.handles.quiet()
    assert "is not stopped, and ends by its silence: Redis denies this user" in caplog.text


async def test_an_action_that_may_not_go_on_is_left_and_told(
    mails: Queue, denied: tuple[str, Callable[[], object]], caplog: pytest.LogCaptureFixture
) -> None:
    bury(mails, "acme", 40)
    url, deny = denied
    async with at.counter(url) as counter:
        handle = await begun(counter, "10")
        deny()
        await counter.handles.quiet()
    (told,) = [each.getMessage() for each in caplog.records if each.name == "shardq.dashboard"]
    assert told.startswith(f"action {handle} of queue mails ended: Redis denies this user the right")


async def test_a_try_is_not_stopped_for_ever(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("shardq.dashboard.actions.handles.RETRY_SECONDS", 0)
    tries = 0

    def silent(*_args: object) -> Any:
        nonlocal tries
        tries += 1
        raise BackendTimeout("no answer")

    monkeypatch.setattr("shardq.dashboard.actions.handles.queue_of", silent)
    async with at.counter(server.url) as counter:
        await counter.handles._end("mails", "one")
    assert tries == MAX_STOPS
    assert "action one of queue mails is not stopped, and ends by its silence: no answer" in caplog.text


async def _is(counter: at.Counter, queue: str, handle: str, state: str) -> bool:
    return bool((await counter.visitor().handle(queue, handle))["state"] == state)


async def test_a_page_that_starts_again_takes_its_own_over(
    server: Server, mails: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(mails, "acme", 40)
    async with at.counter(server.url) as counter:
        handle = await begun(counter, "1")

        async def goes() -> bool:
            return bool((await counter.visitor().handle("mails", handle))["done"])

        await soon(goes)
    before = next(each for each in mails.actions() if each.id == handle)
    assert (before.state, before.via) == ("running", "dashboard")
    monkeypatch.setattr("shardq.dashboard.actions.handles.GLANCE", 0.05)
    async with at.counter(server.url) as counter:
        counter.handles.search()  # the page before is silent, but not for long enough
        await soon(lambda: _looked(counter))
        assert counter.handles.under_way == 0
        silence(server, mails, handle)
        await soon(lambda: _is(counter, "mails", handle, "running"))
        assert counter.handles.under_way == 1
        mails.stop_action(handle)
        await counter.handles.quiet()
    status = next(each for each in mails.actions() if each.id == handle)
    assert (status.state, status.by) == ("stopped", "jonas")
    assert set(events(mails, "redriven")) == {("jonas", "")}
    assert mails.stats().dead + mails.stats().backlog == 40


async def _looked(counter: at.Counter) -> bool:
    return bool(counter.handles.looks)


async def test_an_action_of_another_program_is_left_to_it(server: Server, mails: Queue) -> None:
    bury(mails, "acme", 5)
    action = mails.redrive(Where(state="dead"), by="mia")
    silence(server, mails, action.id)
    async with at.counter(server.url) as counter:
        (shown,) = await actions_of(counter.page.state.source, "mails")
        assert (shown["state"], shown["stops"], shown["goes_on"]) == ("abandoned", True, True)
        assert counter.handles.under_way == 0
        asked = await counter.visitor().ask("go_on", queue="mails", id=action.id)
        assert "Its process was silent for 30 s. 0 messages redriven." in asked.text
        await counter.visitor().act("go_on", asked["ticket"])
        await counter.handles.quiet()
    assert mails.stats().backlog == 5


async def test_one_that_was_told_to_stop_is_not_taken_over(server: Server, mails: Queue) -> None:
    bury(mails, "acme", 40)
    async with at.counter(server.url) as counter:
        handle = await begun(counter, "1")
        await counter.handles.close()
        mails.stop_action(handle)
        silence(server, mails, handle)
        (shown,) = await actions_of(counter.page.state.source, "mails")
        assert (shown["state"], counter.handles.under_way) == ("stopped", 0)


async def test_one_that_is_stopped_while_it_is_taken_over_stays_stopped(server: Server, mails: Queue) -> None:
    """What the page has seen is from before."""
    bury(mails, "acme", 40)
    async with at.counter(server.url) as counter:
        handle = await begun(counter, "1")
        await counter.handles.close()
        silence(server, mails, handle)
        seen = mails.actions()
        assert seen[0].state == "abandoned"
        assert mails.stop_action(handle).state == "stopped"
        counter.handles.care("mails", seen)
        await counter.handles.quiet()
    assert mails.actions()[0].state == "stopped"


async def test_one_message_that_was_not_tried_again_is_not_taken_for_another(
    server: Server, mails: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    message_ids = at.fail(mails, "acme", 3)

    async def lost(action: AsyncAction, timeout: float | None = None) -> None:
        raise BackendTimeout("no answer")

    monkeypatch.setattr(AsyncAction, "wait", lost)
    async with at.counter(server.url) as counter:
        answer = await counter.visitor().do("retry_now", queue="mails", message_id=message_ids[-1])
        assert (answer.status, "may have been done, or not" in answer.text) == (503, True)
        await counter.handles.quiet()
        (left,) = mails.actions()
        assert left.state == "stopping"  # so nobody waits for it until it was silent for long enough
    monkeypatch.undo()
    silence(server, mails, left.id)
    async with at.counter(server.url) as counter:
        (shown,) = await actions_of(counter.page.state.source, "mails")
        await counter.handles.quiet()
        assert (shown["state"], shown["goes_on"]) == ("stopped", False)
        asked = await counter.visitor().ask("go_on", queue="mails", id=left.id)
        assert (asked["possible"], asked.text) == (False, "It was about one message: try that one again.")
        assert mails.stats().retrying == 3


async def test_a_page_that_ends_while_it_tries_one_message_again_leaves_it_to_nobody(
    server: Server, mails: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    message_ids = at.fail(mails, "acme", 3)

    async def ended(action: AsyncAction, timeout: float | None = None) -> None:
        raise asyncio.CancelledError

    async with at.counter(server.url) as counter:
        with monkeypatch.context() as patch:
            patch.setattr(AsyncAction, "wait", ended)
            tried = counter.visitor().do("retry_now", queue="mails", message_id=message_ids[-1])
            with pytest.raises(asyncio.CancelledError):
                await tried
    (left,) = mails.actions()
    silence(server, mails, left.id)
    async with at.counter(server.url) as counter:
        (shown,) = await actions_of(counter.page.state.source, "mails")
        assert (shown["state"], shown["goes_on"], counter.handles.under_way) == ("abandoned", False, 0)
        assert (await counter.visitor().do("retry_now", queue="mails", message_id=message_ids[-1])).status == 200
    assert [each.message_id for each in mails.read_many(10)] == [message_ids[-1]]


async def test_who_removes_messages_by_another_s_action_must_be_admin(server: Server, mails: Queue) -> None:
    bury(mails, "acme", 5)
    action = mails.delete_dead(Where(state="dead"), by="ada")
    silence(server, mails, action.id)
    async with at.counter(server.url) as counter:
        refused = await counter.visitor("jonas").do("go_on", queue="mails", id=action.id)
        assert (refused.status, refused.text) == (403, "Actions that remove messages are for the role admin.")
        assert (await counter.visitor("ada").do("go_on", queue="mails", id=action.id)).status == 200
        await counter.handles.quiet()
    assert mails.stats().dead == 0


async def test_an_action_goes_on_after_redis_was_away(
    server: Server, mails: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(mails, "acme", 60)
    monkeypatch.setattr("shardq.dashboard.actions.handles.RETRY_SECONDS", 0.05)
    async with at.counter(f"{server.url}", timeout=0.3) as counter:
        handle = await begun(counter, "60")
        server.pause()
        away = await counter.visitor().ask("pause", queue="mails")
        assert (away.status, away.text) == (503, "Redis did not answer in time, and nothing was done. Try it again.")
        server.resume()
        await soon(lambda: _is(counter, "mails", handle, "done"))
    assert (mails.stats().dead, mails.stats().backlog) == (0, 60)


async def test_a_full_queue_ends_a_redrive_and_says_so(server: Server, mails: Queue) -> None:
    bury(mails, "acme", 20)
    mails.configure(max_len=5)
    async with at.counter(server.url) as counter:
        asked = await counter.visitor().ask("redrive", queue="mails")
        assert "The queue has room for 5 more (max_len): it ends there." in asked.text
        handle = (await counter.visitor().act("redrive", asked["ticket"]))["handle"]
        await counter.handles.quiet()
        status = (await counter.visitor().handle("mails", handle)).body
    assert status["state"] == "failed"
    assert "max_len" in status["line"]


async def test_a_queue_that_redis_lost_keeps_nobody_looking(server: Server, mails: Queue) -> None:
    bury(mails, "acme", 1)
    with server.client() as raw:
        raw.delete(mails.state.keys.meta)
    async with at.counter(server.url) as counter:
        counter.handles.search()

        async def over() -> bool:
            return bool(counter.handles.has_looked)

        assert await counter.client.queues() == ["mails"]
        await soon(over)
