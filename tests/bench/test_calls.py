"""single, concurrent and before run: tiny, and beside this same checkout. Nothing here looks at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as program
from benchmarks import concurrent, single
from benchmarks.calls import action, agents, columns, shardq_calls, trees
from benchmarks.calls.agents import Agent, Called, Field, Row, field
from benchmarks.calls.columns import faster, less
from benchmarks.report import Table
from benchmarks.settings import Place, Settings, place
from benchmarks.workers import environments
from benchmarks.workers.contenders import OTHERS
from tests.parts import HUEY

pytestmark = pytest.mark.runs_in("test-all")

ROOT = environments.ROOT
TINY = ("--rounds", "1", "--messages", "40", "--batch", "4", "--link", "unix")
SMALL = Settings(rounds=1, messages=20, batch=4, link="unix")


@pytest.fixture
def here() -> Iterator[Place]:
    with place(SMALL) as made:
        yield made


@pytest.fixture
def ground(here: Place) -> Iterator[Field]:
    with field(here, 8) as made:
        yield made


@pytest.fixture
def no_huey(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where its packages cannot be fetched."""

    def programs(_: object) -> Path:
        raise environments.Missing("not in a test")

    monkeypatch.setattr(single, "programs", programs)


@pytest.fixture
def one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the one before it, which does not count."""
    monkeypatch.setattr(columns, "MORE", 1)
    monkeypatch.setattr(concurrent, "MORE", 1)


def whole(tables: list[Table]) -> None:
    """Each row has all its columns, and each round its numbers."""
    for table in tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}
        for own in table.data.values():
            assert len(own) == 1
            assert all(run["wall"] > 0 and run["p99"] >= run["p50"] > 0 for run in own)


@pytest.mark.usefixtures("no_huey", "one_round")
@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("single", str(ROOT)),
        ("concurrent", str(ROOT)),
        ("before", str(ROOT)),
        ("before", ""),
    ],
)
def test_each_runs_beside_a_base(name: str, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrent, "CROWDS", concurrent.CROWDS[:2])  # a thousand tasks do the same for longer
    tables = program.run([name, *TINY, "--base", base])
    whole(tables)
    targets = [str(each) for table in tables for each in table.targets]
    assert any("against the base" in each for each in targets) == bool(base and name != "single")
    assert all("half of the rounds" in each for each in targets)
    assert len(targets) == (0 if not base else {"single": 2, "concurrent": 6, "before": 12}[name])
    assert all(("base: " in table.context) == bool(base) for table in tables)


@pytest.mark.usefixtures("no_huey", "one_round")
def test_who_is_missing_is_named(here: Place) -> None:
    written, read = single.run(here)
    for table in (written, read):
        assert "huey is left out" in table.context
        assert not any(row[0].startswith("huey") for row in table.rows)
        assert len(table.targets) == 1


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
    agent = ground.agent("huey_calls", tree=None, python=huey_python)
    runs = ground.take([Row(each, agent, each) for each in ("enqueue", "dequeue")], 1)
    assert all(run.commands > 0 for own in runs.values() for run in own)


def test_where_hueys_packages_cannot_be_fetched_the_run_says_so(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    def programs(_: object) -> Path:
        raise environments.Missing("no index")

    monkeypatch.setattr(environments, "programs", programs)
    with pytest.raises(pytest.skip.Exception, match="huey is missing"):
        request.getfixturevalue("huey_python")


def test_several_places_are_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def tables(where: Place) -> list[Table]:
        return [Table("one", "One", where.described(), ("what",), [("a",)])]

    monkeypatch.setattr(concurrent, "run", tables)
    found = program.run(["concurrent", "--link", "both", "--json", str(tmp_path)])
    product = {each.name.partition("@")[2].partition("-")[0] for each in found}
    assert len(product) == 1
    assert [each.name.rpartition("-")[2] for each in found] == ["tcp", "unix"]
    assert ["TCP" in each.context for each in found] == [True, False]
    assert len(list(tmp_path.iterdir())) == 2


def test_all_servers_are_one_program_of_each_product() -> None:
    products = []
    for each in replace(SMALL, server="all").places():
        with place(each) as where:
            products.append(where.product)
    assert sorted(products) == sorted(set(products)) != []


def test_an_action_handles_each_message_once(ground: Field, here: Place) -> None:
    agent = ground.agent("shardq_calls")
    server: Any = ground._server
    assert "write, 1,000 tasks" in agent
    for name, (_, commands) in agent._actions.items():
        if "1,000" in name:
            continue  # as those of 64, but for longer
        before = _calls(server)
        assert isinstance(agent.measured(server, name), Called)
        assert tuple(commands) == shardq_calls.CALLS
        assert _calls(server) > before
    queue = shardq_calls.Calls(_given(here, agent)).queue
    stats = queue.stats()
    assert stats.backlog == stats.in_flight == 0


def _calls(server: Any) -> int:
    """How many functions and scripts the server has run."""
    stats = server.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in shardq_calls.CALLS)


def _given(here: Place, agent: Agent | None = None) -> action.Given:
    words: Any = agent._process.args if agent else None
    told = json.loads(words[-1]) if words else {}
    plain = {"url": here.url, "name": "given", "messages": 8, "batch": 4, "payload": 10, "streams": 8}
    return action.Given(**(plain | {"per_shard": 2, "tenants": 3, "seed": 1, "each": 1} | told))


def test_the_ack_with_the_next_read_is_measured_where_a_read_can_take_one(
    here: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = shardq_calls.Calls(_given(here))
    acked = []
    read = calls.queue.read

    def with_ack(*, ack: Any = None) -> Any:
        if ack is not None:
            acked.append(ack.message_id)
            ack.ack()
        return read()

    monkeypatch.setattr(calls.queue, "read", with_ack)
    calls.fill()
    assert len(calls._with_next(None)) == 8  # seven reads that bring an ack, and the last ack
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


def test_a_base_is_a_folder_or_a_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, here: Place) -> None:
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
    with Agent("shardq_calls", _given(here), commit.folder) as agent:  # it says so if shardq is another's
        assert "write" in agent


def test_an_agent_without_the_tree_that_it_was_told_ends(here: Place, tmp_path: Path) -> None:
    with Agent("shardq_calls", _given(here), tmp_path) as agent, pytest.raises(RuntimeError, match="ended"):
        assert "write" in agent


def test_a_rate_is_judged_by_the_median_of_the_rounds() -> None:
    slow, fast = ([agents.Called(wall, 1, 1, wall, 1, 1) for wall in walls] for walls in ((4, 4, 8), (2, 1, 2)))
    assert str(faster("it", fast, slow, 3)) == "reached: it at least 3 x: 4.00 x (half of the rounds: 2.00 x to 4.00 x)"
    assert less("it", fast, slow, "commands", 0.25).value == 0.25
