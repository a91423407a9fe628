"""`benchmarks calls` runs: tiny. Nothing here looks at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as program
from benchmarks import reads
from benchmarks.calls import action, shardq_calls, tables
from benchmarks.calls.agents import Agent, Called, Field, Row, field
from benchmarks.modes import trees
from benchmarks.modes.agent import use
from benchmarks.prior_art import connect
from benchmarks.report import Table
from benchmarks.rounds import half, ratio
from benchmarks.settings import ROOT, Place, Settings, commit_of, place
from benchmarks.workers import environments
from benchmarks.workers.contenders import OTHERS
from tests.parts import HUEY

pytestmark = pytest.mark.runs_in("test-all")

TINY = ("--rounds", "1", "--messages", "40", "--batch", "4", "--link", "unix")
SMALL = Settings(rounds=1, messages=20, batch=4, link="unix")
WAITING = 12


@pytest.fixture
def here() -> Iterator[Place]:
    with place(SMALL) as made:
        yield made


@pytest.fixture
def ground(here: Place) -> Iterator[Field]:
    with field(here, 8, WAITING) as made:
        yield made


@pytest.fixture
def no_huey(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where its packages cannot be fetched."""

    def programs(_: object) -> Path:
        raise environments.Missing("not in a test")

    monkeypatch.setattr(tables, "programs", programs)


@pytest.mark.usefixtures("no_huey")
def test_each_table_is_made_and_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MORE", 1)
    monkeypatch.setattr(tables, "CASES", [replace(each, waiting=min(each.waiting, WAITING)) for each in tables.CASES])
    monkeypatch.setattr(tables, "CALLERS", [row for row in tables.CALLERS if "1,000" not in row[0]])
    monkeypatch.setattr(tables, "CROWDS", {crowd: 1.0 for crowd in tables.CROWDS if "1,000" not in crowd})
    found = program.run(["calls", *TINY])
    cases = [f"calls-{case}-{what}" for case in ("empty", "backlog", "large") for what in ("write", "read")]
    assert [table.name for table in found] == [*cases, "calls-callers"]
    for table in found:
        assert {len(row) for row in table.rows} == {len(table.columns)}
        assert "huey is left out" in table.context
        assert not any(row[0].startswith("huey") for row in table.rows)
        for own in table.data.values():
            assert len(own) == 1
            assert all(run["wall"] > 0 and run["client"] > 0 and run["p99"] >= run["p50"] > 0 for run in own)
    assert {table.name for table in found if not table.targets} == set()


@pytest.mark.usefixtures("no_huey")
def test_one_table_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MORE", 1)
    assert [table.name for table in program.run(["calls", *TINY, "--only", "empty"])] == [
        "calls-empty-write", "calls-empty-read",
    ]  # fmt: skip


@pytest.fixture
def huey_python(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The Python of huey's environment, which is made under .bench/ if it is not there yet (10 s)."""
    monkeypatch.setenv("PIP_RETRIES", "1")
    monkeypatch.setenv("PIP_TIMEOUT", "5")
    huey = next(each for each in OTHERS if each.name == "huey")
    try:
        return environments.programs(huey) / "python"
    except environments.Missing:
        return pytest.skip(str(HUEY))


def test_huey_puts_each_job_on_its_list_and_pops_it(ground: Field, huey_python: Path) -> None:
    agent = ground.agent("huey_calls", python=huey_python)
    runs = ground.take([Row(each, agent, each) for each in agent.actions], 1)
    assert all(run.server > 0 for own in runs.values() for run in own)
    assert "huey, enqueue, 64 threads" in [row[0] for row in tables.CALLERS]
    with connect(ground._place.url) as server:
        assert server.llen("huey.redis.jobs") == WAITING


def test_where_hueys_packages_cannot_be_fetched_the_run_says_so(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    def programs(_: object) -> Path:
        raise environments.Missing("no index")

    monkeypatch.setattr(environments, "programs", programs)
    with pytest.raises(pytest.skip.Exception, match="huey is missing"):
        request.getfixturevalue("huey_python")


def test_several_places_are_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def made(where: Place) -> list[Table]:
        return [Table("one", "One", where.described(), ("what",), [("a",)])]

    monkeypatch.setattr(reads, "run", made)
    found = program.run(["reads", "--link", "both", "--json", str(tmp_path)])
    product = {each.name.partition("@")[2].partition("-")[0] for each in found}
    assert len(product) == 1
    assert [each.name.rpartition("-")[2] for each in found] == ["tcp", "unix"]
    assert ["TCP" in each.context for each in found] == [True, False]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_table_says_of_which_commit_it_is(here: Place) -> None:
    assert f"commit {commit_of(ROOT)}" in here.described()
    assert commit_of(Path("/")) == "unknown"


def test_all_servers_are_one_program_of_each_product() -> None:
    products = []
    for each in replace(SMALL, server="all").places():
        with place(each) as where:
            products.append(where.product)
    assert sorted(products) == sorted(set(products)) != []


def test_each_action_handles_its_messages_and_leaves_what_waited(ground: Field, here: Place) -> None:
    agent = ground.agent("shardq_calls")
    assert "write, 1,000 tasks" in agent.actions
    for name in agent.actions:
        if "1,000" not in name:  # as those of 64, but for longer
            assert isinstance(agent.measured(ground._server, name), Called)
    queue = shardq_calls.Calls(replace(given(here, agent), waiting=0)).queue
    stats = queue.stats()
    assert (stats.backlog, stats.in_flight) == (WAITING, 0)


def test_each_reference_handles_its_messages_and_leaves_what_waited(ground: Field, here: Place) -> None:
    agent = ground.agent("plain")
    for name in agent.actions:
        assert isinstance(agent.measured(ground._server, name), Called)
    name = given(here, agent).name
    with connect(here.url) as server:
        assert server.llen(f"{name}:list") == server.xlen(f"{name}:bare") == WAITING
        assert sum(map(server.xlen, server.scan_iter(f"{name}:prior:s*"))) == WAITING


def given(here: Place, agent: Agent | None = None) -> action.Given:
    words: Any = agent._process.args if agent else None
    told = json.loads(words[-1]) if words else {}
    plain = {"url": here.url, "name": "given", "messages": 8, "batch": 4, "payload": 10, "streams": 8}
    return action.Given(**(plain | {"per_shard": 2, "tenants": 3, "seed": 1} | told))


def test_a_read_brings_the_ack_of_the_one_before(here: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = shardq_calls.Calls(given(here))
    acked = []
    read = calls.queue.read

    def with_ack(*, ack: Any = None) -> Any:
        if ack is not None:
            acked.append(ack.message_id)
        return read(ack=ack)

    monkeypatch.setattr(calls.queue, "read", with_ack)
    calls.fill(8)
    assert len(calls.with_next(None)) == 8  # seven reads that bring an ack, and the last ack
    assert len(set(acked)) == 7
    assert calls.queue.stats().backlog == calls.queue.stats().in_flight == 0


def test_threads_share_the_calls() -> None:
    seen: list[int] = []
    crowd = action.Crowd(3, seen.append, range(10))
    assert seen == []
    assert len(crowd.go()) == 10
    assert sorted(seen) == list(range(10))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_call_that_fails_in_a_thread_is_noticed() -> None:
    crowd = action.Crowd(2, lambda number: 1 / number, [1, 0])
    with pytest.raises(RuntimeError, match="a call failed"):
        crowd.go()


def test_a_base_is_a_folder_or_a_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert trees.tree_of("") is None
    folder = trees.tree_of(str(ROOT))
    assert folder
    assert folder.folder == ROOT.resolve()
    with pytest.raises(SystemExit, match="neither the folder of a checkout nor a commit"):
        trees.tree_of(str(tmp_path))
    monkeypatch.setattr(trees, "CACHE", tmp_path)
    commit = trees.tree_of("HEAD")
    assert commit
    assert commit == trees.tree_of(commit.commit)
    assert commit.folder == tmp_path / f"tree-{commit.commit}"


def test_an_agent_of_another_tree_notices_if_shardq_is_not_its_own(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="shardq is not that of"):
        use(str(tmp_path))


def test_an_agent_that_cannot_begin_is_noticed(here: Place) -> None:
    with Agent("no_such_calls", given(here)) as agent, pytest.raises(RuntimeError, match="ended"):
        assert "write" in agent.actions


def test_what_is_compared_is_the_median_of_the_rounds_own_ratios() -> None:
    slow, fast = ([Called(wall, 1, 1, 1, 1) for wall in walls] for walls in ((4, 4, 8), (2, 1, 2)))
    assert ratio(slow, fast, "wall") == 4
    assert ratio(slow, fast, "cpu") == 1
    assert half([1, 9, 2, 3, 4]) == (2, 4)
