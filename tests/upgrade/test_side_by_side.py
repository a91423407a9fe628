"""Two versions beside each other, under load, and then one of them alone: nothing is lost, nothing comes twice.

There are three versions: the first that has these formats, today's, and a made-up one after it. So today's code is the
newer one of a pair, and the older one of another. A process that is told an error fails the test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from shardq import Client, Queue
from tests.parts import FIRST, HISTORY
from tests.servers import Server
from tests.soak.history import History, load, verdict
from tests.soak.processes import drained
from tests.upgrade.party import LEASE
from tests.upgrade.sides import SOON, Side
from tests.upgrade.sources import ROOT, code_of, next_code
from tests.waiting import eventually

pytestmark = [pytest.mark.runs_in("test-all"), pytest.mark.once, pytest.mark.timeout(900)]

UP: Final = pytest.param("first", "today", marks=HISTORY.needed)
DOWN: Final = pytest.param("today", "first", marks=HISTORY.needed)
PAIRS: Final = (UP, ("today", "next"))
BOTH_WAYS: Final = (UP, DOWN, ("today", "next"), ("next", "today"))
Sides = Callable[[str], Side]


@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of the versions that there are here."""
    found = {"today": ROOT, "next": next_code(tmp_path_factory.mktemp("next"))}
    if HISTORY.is_there():
        found["first"] = code_of(FIRST, tmp_path_factory.mktemp("first"))
    return found


@pytest.fixture
def sides(codes: dict[str, Path], server: Server, queue_name: str, tmp_path: Path) -> Iterator[Sides]:
    """Programs of a version, by its name."""
    for kind in ("raw", "calls"):
        (tmp_path / kind).mkdir()
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(Side(name, codes[name], server.url, queue_name, tmp_path))


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client.from_url(server.url, timeout=SOON) as client:
        yield client


@pytest.fixture
def raw(client: Client, queue_name: str) -> Queue:
    """The queue of those who read without a worker, and of edges."""
    queue = client.queue(f"{queue_name}-raw", streams=4, journal=1_000_000, visibility_timeout=LEASE)
    queue.declare()
    return queue


@pytest.fixture
def calls(client: Client, queue_name: str) -> Queue:
    """The queue of those who wait for what workers return."""
    queue = client.queue(f"{queue_name}-calls", streams=4, result_ttl=3600.0, visibility_timeout=LEASE)
    queue.declare()
    return queue


@pytest.fixture
def listen(tmp_path: Path) -> str:
    """Where gateways listen, one after the other."""
    return f"unix:{tmp_path}/gateway"


@pytest.fixture
def spool(tmp_path: Path) -> str:
    return str(tmp_path / "spool")


def go_on(*sides: Side) -> None:
    for each in sides:
        each.go_on()


def judged(folder: Path) -> History:
    """What happened in a queue: nothing that must not, and each message was acked by one reader."""
    found = load(folder)
    assert verdict(found) == {}
    assert Counter(each.value for each in found.leases if each.verb == "ack") == Counter(found.ids.keys())
    return found


@pytest.mark.parametrize(("before", "after"), BOTH_WAYS)
def test_a_deploy_under_load_loses_nothing_and_no_caller_is_told_an_error(
    sides: Sides, raw: Queue, calls: Queue, server: Server, tmp_path: Path, before: str, after: str
) -> None:
    """Up and down: programs of one version, then of both, then of the other one alone."""
    server.run("FUNCTION", "FLUSH")  # other versions were on this server before
    leaving, coming = sides(before), sides(after)
    leaving.start("produce+call+consume+work")
    go_on(leaving)
    writers, _ = coming.start("produce+call"), coming.start("consume+work")
    go_on(leaving, coming)
    if "next" in (before, after):
        names = {each.split(b".")[0] for each in libraries(server)}
        assert len(names) == 2
        coming.run("server", "lua", "clean", "--yes")  # also while those of the other version work
        go_on(leaving, coming)
    leaving.end()
    go_on(coming)
    coming.end(writers)
    for each in (raw, calls):
        eventually(lambda each=each: drained(each), SOON)  # type: ignore[misc]
    coming.end()
    assert len(judged(tmp_path / "raw").ids) > 100
    assert len(judged(tmp_path / "calls").ids) > 10


def libraries(server: Server) -> set[bytes]:
    """The names of shardq's libraries of functions on a server."""
    listed = (dict(zip(each[::2], each[1::2], strict=True)) for each in server.run("FUNCTION", "LIST"))
    return {each[b"library_name"] for each in listed}


@pytest.mark.parametrize(("older", "newer"), PAIRS)
def test_each_reads_what_the_other_one_wrote(
    sides: Sides, raw: Queue, calls: Queue, server: Server, tmp_path: Path, older: str, newer: str
) -> None:
    """The newer version has the whole journal, and the older one counts what it cannot read of it."""
    former, latter = sides(older), sides(newer)
    writers = former.start("produce"), former.start("call")
    latter.start("consume+work")
    go_on(former, latter)
    assert former.ask("workers")["seen"] == 1
    former.end(*writers)
    eventually(lambda: drained(calls), SOON)
    latter.end()
    former.start("consume+work")
    writer = latter.start("produce+call")
    go_on(former, latter)
    latter.end(writer)
    for each in (raw, calls):
        eventually(lambda each=each: drained(each), SOON)  # type: ignore[misc]
    former.end()
    written = len(judged(tmp_path / "raw").ids)
    judged(tmp_path / "calls")
    at_newer, at_older = latter.ask("journal"), former.ask("journal")
    assert at_newer["lost"] == 0
    assert at_newer["told"]["written"] == at_newer["told"]["acked"] == written
    assert at_older["lost"] + sum(at_older["told"].values()) == sum(at_newer["told"].values())
    if newer == "next":  # else nothing was tried here
        assert at_older["lost"] > 0
        assert int(server.run("HGET", raw.state.keys.meta, "made_up")) > 0


def delivered(queue: Queue) -> Counter[Any]:
    """All that is in the queue, which is acked."""
    found = Counter[Any]()
    while some := queue.read_many(1000):
        assert queue.ack_many(some) == []
        found.update(each.payload for each in some)
    return found


def taken(folder: Path) -> Counter[Any]:
    """What edges took, each once."""
    return Counter(load(folder / "raw").ids.keys())


@pytest.mark.parametrize(("before", "after"), BOTH_WAYS)
def test_an_edge_goes_on_while_its_gateway_becomes_another_version(
    sides: Sides, raw: Queue, tmp_path: Path, listen: str, spool: str, before: str, after: str
) -> None:
    """Of the other version it is before that, too: so each pair speaks."""
    leaving, coming = sides(before), sides(after)
    gateway = coming.gateway(listen)
    try:
        leaving.start("send", listen, spool)
        for side in (leaving, coming):
            stored = raw.len()
            eventually(lambda stored=stored: raw.len() > stored + 20, SOON)  # type: ignore[misc]
            gateway.end_as_a_deploy_does()
            gateway = side.gateway(listen)
        leaving.end()
        said = leaving.ask("flush", listen, spool)
    finally:
        gateway.close()
    assert (said["accepted"], said["refused"]) == (said["acked"], 0)
    assert delivered(raw) == taken(tmp_path)


@pytest.mark.parametrize(("filling", "sending"), [UP, DOWN, ("today", "next")])
def test_a_spool_with_messages_of_one_version_is_sent_by_the_other(
    sides: Sides, raw: Queue, tmp_path: Path, listen: str, spool: str, filling: str, sending: str
) -> None:
    former, latter = sides(filling), sides(sending)
    former.start("send", listen, spool)  # while there is no gateway
    go_on(former)
    former.end()
    gateway = former.gateway(listen)
    try:
        said = latter.ask("flush", listen, spool)
    finally:
        gateway.close()
    assert (said["accepted"], said["refused"]) == (said["acked"], 0)
    assert delivered(raw) == taken(tmp_path)


def test_an_older_version_refuses_a_spool_of_a_later_one_and_leaves_it_as_it_is(
    sides: Sides, raw: Queue, tmp_path: Path, listen: str, spool: str
) -> None:
    older, newer = sides("today"), sides("next")
    newer.start("send", listen, spool)
    go_on(newer)
    newer.end()
    with pytest.raises(AssertionError, match="is of version 3, or another program's: this shardq knows 2"):
        older.ask("flush", listen, spool)
    gateway = older.gateway(listen)
    try:
        said = newer.ask("flush", listen, spool)
    finally:
        gateway.close()
    assert (said["accepted"], said["refused"]) == (said["acked"], 0)
    assert delivered(raw) == taken(tmp_path)


@pytest.mark.parametrize(("older", "newer"), PAIRS)
def test_what_one_version_exports_the_other_one_declares(
    sides: Sides, raw: Queue, client: Client, older: str, newer: str
) -> None:
    raw.configure(max_deliveries=7)
    raw.set_weights({"acct-7": 3})
    raw.set_plan("gold", max_in_flight=5)
    told = [sides(older).run("export", raw.name)]
    for number, name in enumerate((newer, older), 1):
        side, other = sides(name), f"{raw.name}-{number}"
        side.run("apply", "-", "--yes", text=told[-1].replace(raw.name, other))
        told.append(side.run("export", other).replace(other, raw.name))
    assert told[0] == told[1] == told[2]
    assert client.queue(f"{raw.name}-2").weights() == {"acct-7": 3}
