"""Whether Redis is there: what counts as an answer, who may ask while it is away, and what the log says of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shardq import BackendError, Client, ClosedError, ConfigError, QueueMissing
from shardq.errors import BackendTimeout
from shardq.exporter.errors import Garbled, ToldError, public_text
from shardq.exporter.poller import Poller
from shardq.exporter.queues import MAX_QUEUES_AT_ONCE, QueueSamples
from shardq.exporter.server import READY_SECONDS, RETRY, Gate, ServerNumbers
from shardq.ops.queue.retry import refuse
from shardq.ops.queue.steps import Refused
from shardq.telemetry.instruments import UP
from shardq.testing import ManualClock
from tests.servers import Server as RedisServer
from tests.waiting import eventually

AWAY = BackendTimeout("no answer from Redis after 3 tries (Error 111 connecting to secret:6379)")


def refusal(code: str) -> BackendError:
    """The error that a refusal means."""
    with pytest.raises(BackendError) as raised:
        refuse(Refused(code, "of secret"))
    return raised.value


@contextmanager
def named(server: RedisServer, *words: str) -> Iterator[None]:
    """In this context the server demands a password of its default user, and knows nobody else but by *words*."""
    server.run("ACL", "SETUSER", "looks", "on", ">right", "~*", "&*", "+@all")
    try:
        yield
    finally:
        server.run("ACL", "DELUSER", "looks")


def at(server: RedisServer, user: str) -> str:
    return server.url.replace("://", f"://{user}@")


def texts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage().partition(":")[0] for each in caplog.records]


GONE, IS_BACK, WRONG = (
    "Redis is away, and nothing is exported until it is back",
    "Redis answers again",
    "nothing is exported until this is mended",
)


def test_a_wrong_password_is_no_answer(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "shardq")
    clock = ManualClock()
    with named(server), Client.from_url(at(server, "looks:wrong")) as client:
        poller = Poller(client, clock=clock)
        for _ in range(3):
            assert not poller.is_ready()
            with pytest.raises(BackendError, match="does not know this user"):
                poller.stats("jobs")
            clock.advance(RETRY)
        assert poller.server.why_not() == "Redis does not know the user of this process: its log says more"
        assert texts(caplog) == [WRONG]
        assert "put a user and password" in caplog.messages[0]
        server.run("ACL", "SETUSER", "looks", ">wrong")
        assert poller.is_ready()
        assert caplog.messages[1:] == ["Redis answers"]


def test_a_user_that_is_taken_away_makes_it_unready(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    with named(server), Client.from_url(at(server, "looks:right")) as client:
        client.queue("jobs", streams=1).declare()
        poller = Poller(client, clock=clock)
        assert (poller.stats("jobs").backlog, poller.is_ready()) == (0, True)
        server.run("ACL", "SETUSER", "looks", "resetpass", ">other")
        server.run("CLIENT", "KILL", "USER", "looks")
        clock.advance(READY_SECONDS)
        assert not poller.is_ready()
        assert texts(caplog) == [WRONG]


def test_that_it_goes_and_comes_is_said_once_each(
    server: RedisServer, client: Client, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "shardq")
    client.queue("jobs", streams=1).declare()
    poller = Poller(client, clock=clock)
    assert poller.is_ready()
    assert caplog.messages == []
    poller.server.patience = 0.2
    server.kill9()
    for _ in range(5):
        clock.advance(READY_SECONDS)
        assert not poller.is_ready()
        with pytest.raises(BackendError):
            poller.stats("jobs")
    assert texts(caplog) == [GONE]
    assert poller.server.why_not() == "Redis does not answer"
    server.start()

    def is_back() -> bool:
        clock.advance(RETRY)
        return poller.is_ready()

    eventually(is_back)
    assert texts(caplog) == [GONE, IS_BACK]


def test_a_worker_which_says_it_itself_hears_no_more_of_it(
    server: RedisServer, client: Client, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    watched = ServerNumbers(client, clock, is_logged=False)
    watched.note(AWAY)
    watched.note(None)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("error", "is_ready", "text"),
    [
        (None, True, ""),
        (AWAY, False, "Redis does not answer"),
        (BackendError("it says what no server says"), False, "Redis does not answer as it should"),
        (refusal("WRONGPASS"), False, "Redis does not know the user"),
        (refusal("NOAUTH"), False, "Redis does not know the user"),
        (refusal("NOPERM"), True, "Redis refused this"),
        (refusal("OOM"), True, "Redis refused this"),
        (refusal("ERR"), True, "Redis refused this"),
        (Garbled("x"), True, "Redis does not answer as it should"),
        (QueueMissing("x"), True, ""),
        (ClosedError("x"), False, ""),
        (ConfigError("x"), False, ""),
        (ToldError("all may hear this"), False, "all may hear this"),
    ],
)
def test_what_is_an_answer_and_what_all_may_hear_of_it(
    clock: ManualClock, error: Any, is_ready: bool, text: str
) -> None:
    gate = Gate(clock)
    gate.note(error)
    assert gate.answered_within(1) is is_ready
    if text:
        assert public_text(error).startswith(text)
        assert "secret" not in public_text(error)


def test_what_says_nothing_of_redis_changes_nothing(clock: ManualClock) -> None:
    gate = Gate(clock)
    gate.note(AWAY)
    for error in (ClosedError("x"), ConfigError("x"), ToldError("x")):
        gate.note(error)
        assert str(gate.error) == str(AWAY)


# While it is away.


def test_one_at_a_time_tries_and_all_others_hear_at_once_what_is_known(clock: ManualClock) -> None:
    gate, tries, ends = Gate(clock), threading.Event(), threading.Event()
    gate.note(AWAY)

    def ask() -> None:
        with gate.call():
            tries.set()
            ends.wait(60)

    with pytest.raises(BackendTimeout):
        ask()
    assert not tries.is_set(), "somebody has just tried"
    clock.advance(RETRY)
    one = threading.Thread(target=ask)
    one.start()
    assert tries.wait(60)
    clock.advance(RETRY)
    for call in (gate.require, ask):
        with pytest.raises(BackendTimeout):
            call()
    ends.set()
    one.join()
    gate.require()
    ask()


def test_a_try_that_fails_in_any_way_leaves_the_next_one_its_turn(clock: ManualClock) -> None:
    gate = Gate(clock)
    gate.note(AWAY)
    for error in (AWAY, ZeroDivisionError(), ClosedError("x")):
        clock.advance(RETRY)
        with pytest.raises(type(error)), gate.call():
            raise error
    clock.advance(RETRY)
    with gate.call():
        pass
    assert gate.error is None


@pytest.fixture
def calls(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the operations that the client has begun, each of which waits for a server that is away."""
    begun: list[str] = []
    run = client.run

    def noted(op: Any) -> Any:
        begun.append(op.__name__)
        return run(op)

    monkeypatch.setattr(client, "run", noted)
    return begun


@pytest.mark.parametrize("queues", [None, [f"q{number}" for number in range(20)], ["q0"]], ids=["all", "20", "one"])
def test_a_page_waits_once_for_redis_that_is_away(
    server: RedisServer, client: Client, clock: ManualClock, calls: list[str], queues: list[str] | None
) -> None:
    for number in range(20):
        client.queue(f"q{number}", streams=1).write("x", shard_key="acme")
    poller = Poller(client, clock=clock)
    samples = QueueSamples(poller, queues, tenants=3)
    count = 1 + len(queues or range(20))
    for _ in range(2):  # the first one chooses tenants
        assert [each.value for each in samples.samples() if each.instrument is UP] == [1] * count
        for each in samples._tenants.values():
            each.wait()
        clock.advance(READY_SECONDS)
    poller.server.patience = 0.2
    server.kill9()
    try:
        calls.clear()
        assert [each.value for each in samples.samples() if each.instrument is UP] == [0] * count
        assert len(calls) <= (1 if queues is None else MAX_QUEUES_AT_ONCE), "those that had begun when nobody knew"
        for _ in range(3):
            calls.clear()
            samples.samples()
            assert calls == [], "nobody asks again so soon"
            clock.advance(READY_SECONDS)
            samples.samples()
            assert len(calls) == 1
    finally:
        server.start()
        samples.close()


def test_a_page_waits_for_no_other_that_waits_for_redis(clock: ManualClock, client: Client) -> None:
    """Named queues, while somebody else tries whether Redis is back."""
    poller = Poller(client, clock=clock)
    client.queue("jobs", streams=1).declare()
    samples = QueueSamples(poller, ["jobs"])
    assert poller.is_ready()
    poller.server.note(AWAY)
    clock.advance(READY_SECONDS)
    with poller.server.call():
        found: list[Any] = []
        asks = threading.Thread(target=lambda: found.extend(samples.samples()))
        asks.start()
        asks.join(60)
    assert [each.value for each in found if each.instrument is UP] == [0, 0]


@pytest.mark.parametrize("op", ["facts_beside", "named"])
def test_what_is_asked_beside_the_stats_notes_that_redis_is_away(
    server: RedisServer, client: Client, clock: ManualClock, calls: list[str], monkeypatch: pytest.MonkeyPatch, op: str
) -> None:
    """Redis goes away while a page is made."""
    client.queue("jobs", streams=1).write("x", shard_key="acme")
    poller = Poller(client, clock=clock)
    samples = QueueSamples(poller, ["jobs"], tenants=3)
    samples.samples()
    for each in samples._tenants.values():
        each.wait()
    clock.advance(READY_SECONDS)
    right = client.run

    def ends(asked: Any) -> Any:
        if asked.__name__ == op:
            server.kill9()
        return right(asked)

    monkeypatch.setattr(client, "run", ends)
    calls.clear()
    samples.samples()
    server.start()
    assert calls[-1] == op, "nothing is asked after that"
    assert poller.server.error is not None


def test_a_cluster_of_which_a_node_is_away_tells_of_the_others(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A queue whose node is away is asked for its stats alone."""
    clock = ManualClock()
    with Client.from_url(cluster.url) as client:
        for name in ("a", "b", "c", "d"):
            client.queue(name, streams=1).declare()
        poller = Poller(client, clock=clock)
        samples = QueueSamples(poller, ["a", "b", "c", "d"])
        samples.samples()
        right = client.run

        def run(op: Any) -> Any:
            if op.__name__ in ("statistics", "node_of") and "'b'" in repr(op.gi_frame.f_locals):
                raise AWAY
            return right(op)

        monkeypatch.setattr(client, "run", run)
        for _ in range(3):
            clock.advance(READY_SECONDS)
            up = [each for each in samples.samples() if each.instrument is UP and each.labels]
            assert {each.labels[0][1]: each.value for each in up} == {"a": 1, "b": 0, "c": 1, "d": 1}
        samples.close()
    assert caplog.records == []
