"""All queues in a few sentences."""

from __future__ import annotations

from shardq.model.stats import QueueStats
from shardq.model.verdict import Severity, Verdict, VerdictKind
from shardq.outlook.queues import QueueLook, sentences, worst_first
from shardq.outlook.sentence import At, Bold, joined, moments_in, parts_of


def look(name: str, kind: VerdictKind, severity: Severity, sentence: str = "It is so.") -> QueueLook:
    stats = QueueStats(name, 0.0, 1, 0, 0, 0, None, (1,))
    return QueueLook(name, stats, Verdict(name, 0.0, kind, severity, sentence))


def told(*looks: QueueLook, named: bool = False) -> list[str]:
    return [joined(each.parts)[0] for each in sentences(worst_first(looks), named=named)]


def test_those_that_need_somebody_come_first_behind_how_many_they_are() -> None:
    found = told(
        look("b", "flows", "good"),
        look("c", "paused", "pause", "2 wait because it is paused."),
        look("a", "no_worker", "bad", "a has no worker."),
    )
    assert found == ["1 of 3 queues needs you.", "a has no worker.", "c: 2 wait because it is paused."]


def test_one_sentence_stands_alone() -> None:
    given = look("a", "flows", "good"), look("b", "flood", "warn", "acme holds all.")
    assert told(*given) == ["acme holds all."]
    assert told(*given, named=True) == ["b: acme holds all."]


def test_a_full_server_is_said_once() -> None:
    full = "Redis is full."
    found = told(look("a", "redis_full", "bad", full), look("b", "redis_full", "bad", full))
    assert found == [full]


def test_all_is_well() -> None:
    assert told(look("a", "flows", "good"), look("b", "idle", "good")) == ["Work flows in all 2 queues."]
    assert told(look("a", "idle", "good")) == ["Nothing waits in a."]
    assert told() == []


def test_a_lost_queue_needs_somebody() -> None:
    lost = QueueLook("a", QueueStats("a", 0.0, 0, 0, 0, 0, None, ()))
    assert told(lost) == ["a is missing: Redis lost its keys, or somebody deleted them."]


def test_a_verdict_is_made_of_the_parts_of_its_sentence() -> None:
    parts = [Bold("exports"), " has ", Bold("no worker"), " since ", At(3600.0, 7200.0), "."]
    sentence, bold = joined(parts)
    found = parts_of(Verdict("q", 7200.0, "no_worker", "bad", sentence, bold=bold, moments=moments_in(parts)))
    assert [(type(each), str(each)) for each in found] == [(type(each), str(each)) for each in parts]
    assert [each.at for each in found if isinstance(each, At)] == [3600.0]
