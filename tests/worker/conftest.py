"""A server of this folder's own, of the default kind, and workers with both kinds of client."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, cast

import pytest

from shardq import Client, Queue
from shardq.timing import timer
from shardq.worker import keeper, signals, traffic
from tests.clients import CLIENT_KINDS, ClientKind
from tests.servers import Server, ServerKind, available
from tests.waiting import eventually
from tests.worker.forward import Forward, end_leases_earlier
from tests.worker.running import FUNCTION_KINDS, FunctionKind, Handle, RunningWorker

Begin = Callable[..., RunningWorker]
PassTime = Callable[[float], None]
LEASE = 30.0  # seconds: far longer than a busy machine stands still


@pytest.fixture(scope="session")
def default_server() -> Iterator[Server]:
    kinds: list[ServerKind] = available()
    with Server(kinds[0] if kinds else None) as server:
        yield server


@pytest.fixture
def url(default_server: Server) -> str:
    default_server.start()
    default_server.run("FLUSHALL")
    return default_server.url


@pytest.fixture(autouse=True)
def short_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A blocked read of a thread ends at its next slice, and leases are looked at often: not a second for each test."""
    monkeypatch.setattr(traffic, "BLOCK", 0.1)
    monkeypatch.setattr(keeper, "PULSE", 0.05)
    monkeypatch.setattr(timer, "MAX_WAIT", 0.05)


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """A worker or a handler that another test has left would end this process at a test's signal."""
    eventually(lambda: not signals._shared.members, what="all workers have ended")
    usual: dict[int, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    left = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    eventually(lambda: not signals._shared.members, what="all workers have ended")
    assert {number: signal.getsignal(number) for number in usual} == usual
    for number, handler in left.items():
        signal.signal(number, handler)


@pytest.fixture(params=CLIENT_KINDS)
def client_kind(request: pytest.FixtureRequest) -> ClientKind:
    return cast("ClientKind", request.param)


@pytest.fixture(params=FUNCTION_KINDS)
def functions(request: pytest.FixtureRequest) -> FunctionKind:
    """The kind of the functions that a worker runs, where that is apart from the kind of its client."""
    return cast("FunctionKind", request.param)


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client.from_url(url) as client:
        yield client


@pytest.fixture
def jobs(client: Client) -> Queue:
    """The queue `jobs`, created with three deliveries at most."""
    queue = client.queue("jobs", streams=8, visibility_timeout=LEASE, max_deliveries=3)
    queue.read_many(1)
    return queue


@pytest.fixture
def clock() -> Forward:
    """The clock of the workers."""
    return Forward()


@pytest.fixture
def pass_time(clock: Forward, jobs: Queue, default_server: Server) -> PassTime:
    """Lets seconds pass for the leases of `jobs`: their ends move closer in Redis, and the workers' clock goes on."""

    def pass_time(seconds: float) -> None:
        end_leases_earlier(default_server.run, jobs, seconds)
        clock.by += seconds

    return pass_time


@pytest.fixture
def outlast(pass_time: PassTime, jobs: Queue, default_server: Server) -> Callable[[], None]:
    """Lets two lease times pass while a worker works: every lease must be extended again and again."""

    def extended() -> bool:
        rows = default_server.run("ZRANGE", jobs.state.keys.leases, 0, -1, "WITHSCORES")
        ends = [float(end) for token, end in zip(rows[::2], rows[1::2], strict=True) if token]
        return min(ends) > (int(default_server.run("TIME")[0]) + LEASE * 2 / 3) * 1000

    def outlast() -> None:
        for _ in range(5):
            pass_time(LEASE * 0.4)
            eventually(extended, what="leases are extended")

    return outlast


@pytest.fixture
def begin(client_kind: ClientKind, url: str, clock: Forward) -> Iterator[Begin]:
    """Starts a worker with the kind of client under test on the queue `jobs`."""
    with ExitStack() as stack:

        def begin(handle: Handle, **settings: Any) -> RunningWorker:
            return stack.enter_context(
                RunningWorker(client_kind, url, "jobs", handle, client={"clock": clock}, **settings)
            )

        yield begin
