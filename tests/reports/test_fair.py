"""Histories whose truth is known, made by the engine itself: each is judged as it was. One made unfair is called so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from shardq import Limits
from shardq.reports.catalog import made
from shardq.reports.told import Told
from tests.reports.played import Played
from tests.servers import Server

Play = Callable[..., Played]


@pytest.fixture
def play(server: Server) -> Play:
    """Begins a history."""
    return lambda *how, **more: Played(server, *how, **more)


def judged(played: Played, folder: Path) -> Told:
    return made("fair", played.table(folder)).told


def slow_beside_quick(play: Play) -> Played:
    """Jobs of 100 ms beside 10 ms: handlers are shared by time, so one has ten times as many deliveries."""
    played = play(4)
    played.each(["slow"], 0.1, 300)
    played.each(["quick"], 0.01, 1500)
    return played.until(8)


def parents(play: Play) -> Played:
    """One child of a parent beside six of another: the parents share, and the children of one share its part."""
    played = play(4, parents=1)
    played.each(["a/1"], 0.02, 400)
    played.each([f"b/{number}" for number in range(1, 7)], 0.02, 200)
    return played.until(5)


def weights(play: Play) -> Played:
    played = play(4)
    played.queue.set_weights({"A": 9, "B": 1})
    played.each("AB", 0.02, 900)
    return played.until(5)


def weights_changed(play: Play) -> Played:
    played = play(4)
    played.each("AB", 0.02, 900)
    played.at(2.0, lambda: played.queue.set_weights({"A": 5}))
    played.at(4.0, lambda: played.queue.set_weights({"A": 1}))
    return played.until(6)


def plans(play: Play) -> Played:
    """A plan gives the weight."""
    played = play(4)
    played.queue.set_plan("gold", weight=4)
    played.queue.set_limits({"A": "gold"})
    played.each("AB", 0.02, 800)
    return played.until(5)


def paused(play: Play) -> Played:
    """A tenant is paused, later the whole queue."""
    played = play(4)
    played.each("AB", 0.02, 900)
    played.queue.pause("A")
    played.at(3.0, lambda: played.queue.resume("A"))
    played.at(5.0, played.queue.pause)
    played.at(6.0, played.queue.resume)
    return played.until(9)


def limited(play: Play) -> Played:
    """A has a rate, B none."""
    played = play(4)
    played.queue.set_limits({"A": Limits(rate=10, burst=1)})
    played.each("AB", 0.02, 600)
    return played.until(5)


def capped(play: Play) -> Played:
    played = play(4)
    played.queue.set_limits({"A": Limits(max_in_flight=1)})
    played.each("AB", 0.05, 300)
    return played.until(6)


def debounced(play: Play) -> Played:
    """Messages that are replaced before they are due, and picked up when they are."""
    played = play(2)

    def write(number: int) -> None:
        played.write("debounced", 0.01, unique_key=f"k{number % 20}", on_conflict="replace", delay=60)

    for number in range(100):
        played.at(number * 0.5, lambda number=number: write(number))  # type: ignore[misc]
        played.at(number * 0.5, lambda: played.write("plain", 0.2))
    return played.until(200)


def replaced_under_another_key(play: Play) -> Played:
    played = play(2)
    for number in range(50):
        played.at(number * 0.5, lambda n=number: played.write("A", 0.1, unique_key=f"k{n}", delay=0.2))  # type: ignore[misc]
        played.at(
            number * 0.5 + 0.1,
            lambda n=number: played.write("B", 0.1, unique_key=f"k{n}", on_conflict="replace"),  # type: ignore[misc]
        )
        played.at(number * 0.5, lambda: played.write("plain", 0.2, 3))
    return played.until(100)


def in_turns(tenants: int) -> Callable[[Play], Played]:
    def round_robin(play: Play) -> Played:
        played = play(1)
        played.each([f"t{number}" for number in range(tenants)], 0.2, 3)
        return played.until(0.5 * tenants)

    return round_robin


def overload(play: Play) -> Played:
    """Far more comes than is done; a quiet tenant comes now and then."""
    played = play(8)
    for number in range(40):
        played.at(number * 1.0, lambda: played.each(["flood", "other"], 1.0, 10))
        played.at(number * 1.0, lambda: played.write("quiet", 0.5))
    return played.until(60)


def late_beside_long(play: Play) -> Played:
    """All handlers have jobs of 10 s when another tenant comes: no job is taken away."""
    played = play(16)
    played.each(["long"], 10.0, 200)
    played.at(33.0, lambda: played.each(["late"], 1.0, 400))
    return played.until(70)


def by_hand_in_batches(play: Play) -> Played:
    played = play(50, batch=50)
    played.each(["flood"], 1.0, 800)
    played.each([f"t{number}" for number in range(10)], 1.0, 40)
    return played.until(20)


def in_messages(play: Play) -> Played:
    played = play(1, fair="messages")
    played.each(["slow"], 0.1, 100)
    played.each(["quick"], 0.01, 100)
    return played.until(8)


FAIR: dict[str, Callable[[Play], Played]] = {
    each.__name__: each
    for each in (
        slow_beside_quick, parents, weights, weights_changed, plans, paused, limited, capped, debounced,
        replaced_under_another_key, overload, late_beside_long, by_hand_in_batches, in_messages,
    )
} | {"round robin of 300": in_turns(300), "round robin of 1,000": in_turns(1000)}  # fmt: skip


@pytest.mark.once
@pytest.mark.parametrize("history", FAIR)
def test_a_fair_history_is_called_fair(play: Play, tmp_path: Path, history: str) -> None:
    played = FAIR[history](play)
    told = judged(played, tmp_path / "jobs")
    assert not told.is_bad, told.verdict
    assert sum(played.spent.values()) > 0


def edited(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the rows of jobs that ended."""
    for path in (folder / "jobs").rglob("*.parquet"):
        table = pq.read_table(path, partitioning=None)
        rows = table.to_pylist()
        for row in rows:
            change(row)
        pq.write_table(type(table).from_pylist(rows, schema=table.schema), path)


@pytest.mark.once
def test_an_unfair_one_is_called_unfair_and_says_who_was_ahead_of_whom_by_how_much_and_when(
    play: Play, tmp_path: Path
) -> None:
    """Each job of A took twice as long, at the same times: as if A had had twice the handlers."""
    played = play(4)
    played.each("AB", 0.1, 100)
    folder = played.until(5).table(tmp_path / "jobs")

    def double(row: dict[str, Any]) -> None:
        if row["shard_key"] == "A":
            row["work_s"], row["ran_s"] = 2 * row["work_s"], 2 * row["ran_s"]

    edited(folder, double)
    told = made("fair", folder).told
    assert told.is_bad
    [worst] = [row for row in told.rows if row["kind"] == "pair" and row["ahead_s"] > row["bound_s"]]
    assert (worst["tenant"], worst["other"]) == ("A", "B")
    assert worst["ahead_s"] == pytest.approx(played.spent["A"], rel=0.05)
    assert worst["until"] - worst["since"] == pytest.approx(5, abs=0.3)
    assert "A was given 9.9 s of work more than B, by weight, from 2023-11-14 22:13:20 to" in told.verdict


@pytest.mark.once
def test_a_tenant_that_waits_while_another_is_served_is_wronged(play: Play, tmp_path: Path) -> None:
    """As if a pause of B had not been one: the rows that tell of it are gone."""
    played = play(2)
    played.each("AB", 0.1, 200)
    played.queue.pause("B")
    played.at(8.0, lambda: played.queue.resume("B"))
    folder = played.until(12).table(tmp_path / "jobs")
    assert not made("fair", folder).told.is_bad
    for path in (folder / "settings").rglob("*.parquet"):
        table = pq.read_table(path, partitioning=None)
        pq.write_table(table.filter(pc.invert(pc.is_in(table["kind"], value_set=_array("paused", "resumed")))), path)
    edited(folder, lambda row: row.update(blocked_pause_s=0.0))
    told = made("fair", folder).told
    assert told.is_bad
    [worst] = [row for row in told.rows if row["kind"] == "pair" and row["ahead_s"] > row["bound_s"]]
    assert (worst["tenant"], worst["other"]) == ("A", "B")
    assert worst["ahead_s"] == pytest.approx(16, rel=0.1)


def _array(*values: str) -> Any:
    import pyarrow as pa

    return pa.array(values)
