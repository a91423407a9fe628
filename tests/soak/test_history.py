"""The history checker: it accepts what is right, and finds each thing that must not happen."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.soak import history as checker
from tests.soak.history import History, HistoryDamaged, load, verdict
from tests.soak.hour.events import typed
from tests.soak.load import Log

Event: TypeAlias = Mapping[str, Any]


def history(events: list[Event]) -> History:
    return checker.history(map(typed, events))


def wrote(value: str, *ids: str) -> list[Event]:
    return [{"e": "try", "values": [value]}, *({"e": "wrote", "values": [value], "ids": [each]} for each in ids)]


def got(n: int, at: float, message_id: str = "100-1-3", value: str = "a", **more: Any) -> Event:
    facts = {"by": "c", "count": 1, "asked": at - 0.01, "until": at + 0.9, "ends": at + 1.0, "batch": 0}
    return {"e": "got", "n": n, "at": at, "id": message_id, "value": value} | facts | more


def settled(n: int, at: float, *, ok: bool | None = True, verb: str = "ack") -> list[Event]:
    began: Event = {"e": "settling", "by": "c", "n": n, "verb": verb, "at": at}
    return [began] if ok is None else [began, {"e": "settled", "by": "c", "n": n, "ok": ok, "at": at + 0.001}]


GOOD: dict[str, list[Event]] = {
    "written, delivered, acked": [*wrote("a", "100-1-3"), got(0, 1.0), *settled(0, 1.5)],
    "a write without an answer that never came out": [{"e": "try", "values": ["a"]}],
    "a write without an answer that did": [{"e": "try", "values": ["a"]}, got(0, 1.0), *settled(0, 1.5)],
    "a consumer that died, redelivered later": [
        *wrote("a", "100-1-3"), got(0, 1.0), got(1, 2.0, count=2), *settled(1, 2.5),
    ],
    "a consumer that died while its ack was on its way": [
        *wrote("a", "100-1-3"), got(0, 1.0), *settled(0, 1.5, ok=None),
    ],
    "a late ack that was refused": [
        *wrote("a", "100-1-3"), got(0, 1.0), got(1, 2.0, count=2), *settled(1, 2.5), *settled(0, 2.4, ok=False),
    ],
    "given back, taken at once": [
        *wrote("a", "100-1-3"), got(0, 1.0), *settled(0, 1.2, verb="nack"), got(1, 1.3, count=2), *settled(1, 1.4),
    ],
    "a lease that was over before it was in hand": [
        *wrote("a", "100-1-3"), got(0, 2.0, until=1.9), got(1, 1.95, count=2), *settled(1, 2.1),
    ],
    "an extended lease, acked within the extension": [
        *wrote("a", "100-1-3"), got(0, 1.0), {"e": "extended", "by": "c", "n": 0, "until": 3.9, "ends": 4.0},
        *settled(0, 3.5),
    ],
    "two reads at one time, answered in either order": [
        *wrote("a", "100-1-3"), *wrote("b", "100-2-3"), got(0, 1.0, "100-2-3", "b", asked=0.5), *settled(0, 1.1),
        got(1, 1.1, asked=0.6), *settled(1, 1.2),
    ],
    "any order across streams": [
        *wrote("a", "100-1-3"), *wrote("b", "100-2-4"), got(0, 1.0, "100-2-4", "b"), *settled(0, 1.1),
        got(1, 2.0), *settled(1, 2.1),
    ],
}  # fmt: skip

BAD: dict[str, tuple[str | tuple[str, ...], list[Event]]] = {
    "written, never delivered": ("lost", wrote("a", "100-1-3")),
    "delivered, never acked": ("lost", [*wrote("a", "100-1-3"), got(0, 1.0)]),
    "only a refused ack": ("lost", [*wrote("a", "100-1-3"), got(0, 1.0), *settled(0, 1.5, ok=False)]),
    "only given back": ("lost", [*wrote("a", "100-1-3"), got(0, 1.0), *settled(0, 1.5, verb="nack")]),
    "never written": ("unexpected", [got(0, 1.0), *settled(0, 1.5)]),
    "under an id that its writer does not know": (
        "unexpected", [*wrote("a", "100-1-3"), got(0, 1.0, "100-9-3"), *settled(0, 1.5)],
    ),
    "one value under two ids": (
        "doubled", [
            *wrote("a", "100-1-3", "100-2-3"), got(0, 1.0), *settled(0, 1.1), got(1, 2.0, "100-2-3"), *settled(1, 2.1),
        ],
    ),
    "two accepted acks": (
        ("acked twice", "delivered after its ack"),
        [*wrote("a", "100-1-3"), got(0, 1.0), *settled(0, 1.5), got(1, 2.0, count=2), *settled(1, 2.5)],
    ),
    "two accepted acks of reads at one time": (
        "acked twice", [
            *wrote("a", "100-1-3"), got(0, 1.0), *settled(0, 1.1), got(1, 1.2, count=2, asked=0.9), *settled(1, 1.3),
        ],
    ),
    "delivered when it was acked": (
        "delivered after its ack", [*wrote("a", "100-1-3"), got(0, 1.0), *settled(0, 1.5), got(1, 2.0, count=2)],
    ),
    "two holders": (
        "two leases at one time", [*wrote("a", "100-1-3"), got(0, 1.0), got(1, 1.5, count=2), *settled(1, 1.6)],
    ),
    "two holders, the first one killed": (
        "two leases at one time", [*wrote("a", "100-1-3"), got(0, 1.0), got(1, 1.89, count=2), *settled(1, 2.6)],
    ),
    "a lease that was handed on within its extension": (
        "two leases at one time", [
            *wrote("a", "100-1-3"), got(0, 1.0), {"e": "extended", "by": "c", "n": 0, "until": 3.9, "ends": 4.0},
            got(1, 2.0, count=2), *settled(1, 2.5),
        ],
    ),
    "an ack after the lease's end": ("late ack accepted", [*wrote("a", "100-1-3"), got(0, 1.0), *settled(0, 2.01)]),
    "a later one first": (
        "out of order", [
            *wrote("a", "100-1-3"), *wrote("b", "100-2-3"), got(0, 1.0, "100-2-3", "b"), *settled(0, 1.1),
            got(1, 2.0), *settled(1, 2.1),
        ],
    ),
    "a later one first, within one read": (
        "out of order", [
            *wrote("a", "100-1-3"), *wrote("b", "100-2-3"), got(0, 1.0, "100-2-3", "b"), got(1, 1.0, batch=1),
            *settled(0, 1.1), *settled(1, 1.1),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("events", GOOD.values(), ids=GOOD)
def test_what_is_right_is_accepted(events: list[Event]) -> None:
    assert verdict(history(events)) == {}


@pytest.mark.parametrize(("name", "events"), BAD.values(), ids=BAD)
def test_what_must_not_happen_is_found_and_nothing_else(name: str | tuple[str, ...], events: list[Event]) -> None:
    assert list(verdict(history(events))) == ([name] if isinstance(name, str) else [*name])


@pytest.mark.runs_in("test-all")
def test_a_long_history_is_checked_in_about_linear_time(rng: random.Random) -> None:
    events: list[Event] = []
    for n in range(20_000):
        stream, at = n % 8, n / 1000
        message_id = f"100-{n}-{stream}"
        events += [*wrote(f"v{n}", message_id), got(n, at, message_id, f"v{n}"), *settled(n, at + rng.random() / 2)]
    assert verdict(history(events)) == {}
    events += [got(20_000, 25.0, "100-7-7", "v7", count=2), *settled(20_000, 25.1)]
    assert verdict(history(events)).keys() == {"acked twice", "delivered after its ack"}


def test_logs_of_several_processes_are_read_back_whole(tmp_path: Path) -> None:
    producer, consumer = Log(tmp_path, "p"), Log(tmp_path, "c")
    producer.add("try", values=["a"])
    facts = {key: value for key, value in got(0, 1.0).items() if key != "e"}
    consumer.add("got", **facts)
    producer.add("wrote", values=["a"], ids=["100-1-3"])
    for log in (producer, consumer):
        log.close()
    found = load(tmp_path)
    assert found.tried.keys() == {"a"}
    assert found.ids == {"a": ["100-1-3"]}
    assert [lease.at for lease in found.leases] == [1.0]


def test_a_log_that_is_not_whole_proves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    for text in ('{"e": "try", "values"', '{"e": "try"}\n', '{"e": "tried", "values": []}\n', "[]\n"):
        path.write_text(text)
        with pytest.raises(HistoryDamaged, match=r"p\.jsonl, line 1"):
            load(tmp_path)
    path.write_text('{"e": "settling", "by": "c", "n": 1, "verb": "ack", "at": 1.0}\n')
    with pytest.raises(HistoryDamaged, match="it belongs to nothing"):
        load(tmp_path)
