"""The judge accepts a right history, and finds each thing that is wrong in one."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.soak.history import history
from tests.soak.hour import made
from tests.soak.hour.events import typed
from tests.soak.hour.judge import Judgement, judge, judged
from tests.soak.hour.made import BEGIN, LEASE, Event
from tests.soak.hour.record import Record
from tests.soak.hour.spans import Spans
from tests.soak.hour.violation import LOOK, Kind
from tests.soak.sums import Sums

Logs: TypeAlias = dict[str, list[Event]]
Mutation: TypeAlias = Callable[[Logs], object]
pytestmark = pytest.mark.runs_in("test-all")
QUIET_TIME = BEGIN + 60
"""When there is no fault."""


def judgement(logs: Mapping[str, list[Event]]) -> Judgement:
    record = Record()
    for events in logs.values():
        record.add(map(typed, events))
    return judged(record)


def every(logs: Logs, kind: str, **facts: Any) -> Iterator[Event]:
    """The events of a kind with these fields."""
    for events in logs.values():
        yield from (each for each in events if each["e"] == kind and facts.items() <= each.items())


class Story:
    """What became of one message of `sure` that was delivered once and acked."""

    def __init__(self, logs: Logs, skip: int = 500) -> None:
        some = (each for each in every(logs, "got", queue="sure", count=1) if self._is_plain(logs, each))
        self.got = next(itertools.islice(some, skip % 50, None))
        self.log = logs[self.got["by"]]
        self.settling, self.settled = (each for each in self.log if self._is_mine(each))

    @staticmethod
    def _is_plain(logs: Logs, got: Event) -> bool:
        place = {"by": got["by"], "n": got["n"]}
        return bool([*every({"one": logs[got["by"]]}, "settling", verb="ack", **place)])

    def _is_mine(self, event: Event) -> bool:
        return event["e"] in {"settling", "settled"} and event["n"] == self.got["n"]

    def forget(self, *events: Event) -> None:
        for each in events:
            self.log.remove(each)

    def again(self, at: float, **facts: Any) -> Event:
        """One more delivery of the message by somebody else, who dies."""
        moved = {"asked": at - 0.01, "at": at, "until": at + LEASE * 0.9, "ends": at + LEASE, "count": 2}
        event = {**self.got, "by": "other", "n": len(self.log), **moved, **facts}
        self.log.append(event)
        return event

    def move(self, seconds: float) -> None:
        for event in (self.got, self.settling, self.settled):
            for name in ("asked", "at", "until", "ends"):
                if name in event:
                    event[name] += seconds


def lose_ack(logs: Logs) -> None:
    story = Story(logs)
    story.forget(story.settling, story.settled)


def lose_message(logs: Logs) -> None:
    story = Story(logs)
    story.forget(story.got, story.settling, story.settled)


def double_while_leased(logs: Logs) -> None:
    story = Story(logs)
    story.again(story.got["at"] + 0.05)


def deliver_after_ack(logs: Logs) -> None:
    story = Story(logs)
    story.again(story.settled["at"] + 1)


def ack_twice(logs: Logs) -> None:
    story = Story(logs)
    again = story.again(story.settling["at"] + 0.001, asked=story.got["asked"])
    for each in (story.settling, story.settled):
        story.log.append({**each, "by": "other", "n": again["n"], "at": each["at"] + 0.01})


def ack_late(logs: Logs) -> None:
    story = Story(logs)
    story.settling["at"], story.settled["at"] = story.got["ends"] + 0.1, story.got["ends"] + 0.2


def swap_order(logs: Logs) -> None:
    Story(logs).move(10)


def wait_too_long(logs: Logs) -> None:
    """The second delivery of a message whose consumer died."""
    story = Story(logs)
    story.got["count"] = 2
    story.move(100)


def deliver_unwritten(logs: Logs) -> None:
    story = Story(logs)
    story.again(story.got["at"], id="7-7-0", value="sure:nobody's")


def store_twice(logs: Logs) -> None:
    story = Story(logs)
    write = next(each for each in every(logs, "wrote", values=[story.got["value"]]))
    write["values"], write["ids"] = write["values"] * 2, [*write["ids"], "7-7-0"]
    story.again(story.got["at"] + 5, id="7-7-0")


def call(logs: Logs, outcome: str, at: float = QUIET_TIME, took: float = 1.0, **facts: Any) -> None:
    facts = {"queue": "sure", "call": "read", "who": "other", **facts}
    logs["other"].append({"e": "told", "at": at, "answered": at + took, "timeout": 20.0, "outcome": outcome, **facts})


def tell_ok_of_nothing(logs: Logs) -> None:
    logs["other"].append({"e": "try", "queue": "sure", "values": ["sure:x"]})
    call(logs, "ok", call="write", values=["sure:x"])


def deliver_refused(logs: Logs) -> None:
    told = next(every(logs, "told", outcome="BackendTimeout"))
    tried = next(
        one for events in logs.values() for one, other in itertools.pairwise(events) if other is told
    )  # fmt: skip
    story = Story(logs)
    again = story.again(told["answered"] + 1, id="7-7-0", value=tried["values"][0], queue="plain")
    for each in (story.settling, story.settled):
        story.log.append({**each, "by": "other", "n": again["n"], "at": again["at"] + 0.1})


def figure(logs: Logs, at: float = 0.0, **facts: Any) -> None:
    polled = next(each for each in every(logs, "figures", queue="plain", quiet=not at) if each["at"] >= at)
    polled.update(facts)


def hold_back(logs: Logs) -> None:
    """A message of a queue that says that it has none."""
    story = Story(logs)
    polled = next(every(logs, "figures", queue="sure", quiet=True))
    asked = story.got["at"] + 1
    logs["other"].append({**polled, "asked": asked, "at": asked + 0.01, "dead": 0, "quiet": False})
    story.got["count"] = 2
    story.move(30)


def grow(name: str, factor: float) -> Mutation:
    def mutation(logs: Logs) -> None:
        for each in every(logs, "process", who="gateway"):
            if each["at"] > BEGIN + 120:
                each[name] = int(each[name] * factor)

    return mutation


def leave(name: str, more: int) -> Mutation:
    def mutation(logs: Logs) -> None:
        for each in every(logs, "keys", when="end", server="cluster-1"):
            each[name] += more

    return mutation


def forget_recovery(logs: Logs) -> None:
    logs["faults"].remove(next(every(logs, "recovered", name="cut a link")))


def allow(why: str, by: str = "promotion") -> Mutation:
    """A message is lost in a window."""

    def mutation(logs: Logs) -> None:
        story = Story(logs)
        at = next(each["at"] for each in every(logs, "wrote", values=[story.got["value"]]))
        window = {"queue": "sure", "why": why, "by": by, "from": at - 1, "until": at + 0.5}
        story.forget(story.got, story.settling, story.settled)
        logs["faults"].append({"e": "lost_allowed", **window})

    return mutation


def close_window(logs: Logs) -> None:
    """What was lost was written before the promotion could lose it."""
    window = next(every(logs, "lost_allowed"))
    window["from"] = window["until"] - 0.001


WRONG: dict[str, tuple[Kind, Mutation]] = {
    "an ack is missing": (Kind.LOST, lose_ack),
    "a message is missing": (Kind.LOST, lose_message),
    "lost before the window of a promotion": (Kind.LOST, close_window),
    "told ok, and nowhere": (Kind.LOST, tell_ok_of_nothing),
    "delivered twice while leased": (Kind.TWO_LEASES, double_while_leased),
    "delivered after its ack": (Kind.CAME_BACK, deliver_after_ack),
    "acked twice": (Kind.ACKED_TWICE, ack_twice),
    "acked after its lease": (Kind.LATE_ACK, ack_late),
    "two are swapped": (Kind.OUT_OF_ORDER, swap_order),
    "a wait beyond the bound": (Kind.LATE, wait_too_long),
    "nobody wrote it": (Kind.UNEXPECTED, deliver_unwritten),
    "stored twice": (Kind.DOUBLED, store_twice),
    "refused for certain, and delivered": (Kind.TOLD_WRONGLY, deliver_refused),
    "an error without a fault": (Kind.TOLD_WRONGLY, lambda logs: call(logs, "BackendTimeout")),
    "an error of another fault": (Kind.TOLD_WRONGLY, lambda logs: call(logs, "OutOfMemory", at=BEGIN + 10.5)),
    "an error of another library": (Kind.TOLD_WRONGLY, lambda logs: call(logs, "ConnectionError", at=BEGIN + 10.5)),
    "an answer after its time": (Kind.TOLD_WRONGLY, lambda logs: call(logs, "Empty", took=60)),
    "something is left at a quiet point": (Kind.FIGURES_WRONG, lambda logs: figure(logs, ready=1)),
    "a length at a quiet point": (Kind.FIGURES_WRONG, lambda logs: figure(logs, length=1)),
    "another number of dead letters": (Kind.FIGURES_WRONG, lambda logs: figure(logs, dead=1_000)),
    "more ready than wait": (Kind.FIGURES_WRONG, lambda logs: figure(logs, BEGIN + 60, ready=2_000)),
    "more delayed than was written": (Kind.FIGURES_WRONG, lambda logs: figure(logs, BEGIN + 60, delayed=2_000)),
    "a longer queue than was written": (Kind.FIGURES_WRONG, lambda logs: figure(logs, BEGIN + 60, length=2_000)),
    "more in flight than was written": (Kind.FIGURES_WRONG, lambda logs: figure(logs, BEGIN + 60, in_flight=2_000)),
    "fewer than were written": (Kind.FIGURES_WRONG, hold_back),
    "memory that grows": (Kind.MEMORY_GREW, grow("rss", 1.2)),
    "servers that grow": (Kind.MEMORY_GREW, leave("memory", 60_000_000)),
    "descriptors are left": (Kind.DESCRIPTORS_LEFT, grow("fds", 6)),
    "threads are left": (Kind.DESCRIPTORS_LEFT, grow("threads", 20)),
    "keys are left": (Kind.KEYS_LEFT, leave("count", 1)),
    "a fault without recovery": (Kind.NOT_RECOVERED, forget_recovery),
    "a promotion loses what has a replica": (Kind.FORBIDDEN_LOSS, allow("replica(1)")),
    "a kill loses what is in the log": (Kind.FORBIDDEN_LOSS, allow("process", "node killed")),
    "a loss of no level": (Kind.FORBIDDEN_LOSS, allow("something happened")),
}


def test_a_right_history_has_no_violation_and_what_a_promotion_lost_is_counted() -> None:
    found = judgement(made.run())
    assert found.violations == []
    assert {each.kind for each in found.losses} == {Kind.LOST}
    assert {(each.queue, each.level) for each in found.losses} == {("paired", "process")}
    assert len(found.losses) > 3


@pytest.mark.parametrize(("kind", "mutation"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_in_a_history_is_found_and_nothing_else(kind: Kind, mutation: Mutation) -> None:
    logs = made.run()
    mutation(logs)
    found = judgement(logs).violations
    assert {each.kind for each in found} == {kind}, found
    assert all(each.text and each.look for each in found)


@pytest.mark.parametrize(
    ("level", "by"), [("process", "promotion"), ("none", "node killed"), ("disk", "promotion by Sentinel")]
)
def test_a_loss_that_the_level_allows_is_counted_and_is_no_violation(level: str, by: str) -> None:
    logs = made.run()
    before = len(judgement(logs).losses)
    allow(level, by)(logs)
    found = judgement(logs)
    assert found.violations == []
    assert len(found.losses) == before + 1


@pytest.mark.parametrize("mutation", [deliver_after_ack, double_while_leased])
def test_an_ack_or_lease_that_a_promotion_lost_is_a_loss_at_every_level(mutation: Mutation) -> None:
    logs = made.run()
    got = Story(logs).got
    mutation(logs)
    window = {"queue": "sure", "why": "replica(1)", "from": got["at"] - 1, "until": got["at"] + 1}
    logs["faults"].append({"e": "lost_allowed", **window})
    found = judgement(logs)
    assert found.violations == []
    assert [each.kind for each in found.losses if each.queue == "sure"] != []


@pytest.mark.parametrize("outcome", ["Empty", "QueueFull", "LeaseLost", "ResultPending"])
def test_an_error_that_tells_how_things_are_needs_no_fault(outcome: str) -> None:
    logs = made.run()
    call(logs, outcome)
    assert judgement(logs).violations == []


def test_a_fault_explains_an_error_and_a_late_answer() -> None:
    logs = made.run()
    call(logs, "BackendTimeout", at=BEGIN + 10.5)
    logs["faults"] += [
        {"e": "fault", "name": "stop a server", "target": "long", "at": QUIET_TIME, "until": QUIET_TIME + 58},
        {"e": "recovered", "name": "stop a server", "target": "long", "at": QUIET_TIME + 59, "took": 1},
    ]
    call(logs, "Empty", took=60)
    assert judgement(logs).violations == []


def test_a_run_that_was_cut_short_says_so() -> None:
    logs = made.run()
    logs["watch"] = [each for each in logs["watch"] if not each.get("quiet")]
    found = judgement(logs).violations
    assert [each.kind for each in found] == [Kind.DAMAGED]
    assert "plain has no figures of a quiet moment" in found[0].text


def test_a_queue_whose_workers_read_ahead_tells_no_order() -> None:
    logs = made.run()
    swap_order(logs)
    next(every(logs, "got", queue="sure"))["asked"] -= 60
    assert judgement(logs).violations == []


def test_numbers_that_a_promotion_lost_may_be_given_again() -> None:
    logs = made.run()
    swap_order(logs)
    (wrong,) = judgement(logs).violations
    at = Story(logs).got["asked"] - 5
    logs["faults"].append({"e": "lost_allowed", "queue": "sure", "why": "process", "from": at - 1, "until": at})
    assert wrong.kind is Kind.OUT_OF_ORDER
    assert judgement(logs).violations == []


def test_a_dead_letter_that_came_again_may_be_counted_until_it_was_acked() -> None:
    got = {"e": "got", "by": "c", "id": "1-1-0", "value": "v", "count": 1, "until": 9.0, "ends": 9.0, "batch": 0}
    events = [
        {"e": "try", "values": ["v"], "at": 0.0},
        {"e": "wrote", "values": ["v"], "ids": ["1-1-0"], "at": 0.5},
        {**got, "n": 0, "asked": 1.0, "at": 1.0},
        {"e": "settling", "by": "c", "n": 0, "verb": "reject", "at": 2.0},
        {"e": "settled", "by": "c", "n": 0, "ok": True, "at": 2.5},
        {**got, "n": 1, "asked": 7.0, "at": 7.0},
        {"e": "settling", "by": "c", "n": 1, "verb": "ack", "at": 8.0},
        {"e": "settled", "by": "c", "n": 1, "ok": True, "at": 8.5},
    ]
    found = history(map(typed, events))
    assert [Sums(found).undone(at, at) for at in (1.5, 5.0, 9.0)] == [(1, 1), (0, 1), (0, 0)]


def test_each_kind_is_shown_by_a_history_and_says_where_to_look() -> None:
    assert {kind for kind, _ in WRONG.values()} | {Kind.DAMAGED} == {*Kind} == LOOK.keys()


def test_a_folder_is_judged_as_its_processes_left_it(tmp_path: Path) -> None:
    made.main(tmp_path, 300, 2.0, 1)
    assert judge(tmp_path) == []
    log = tmp_path / "p0-plain.jsonl"
    with log.open("a") as file:
        file.write(json.dumps({"e": "settling", "by": "c", "n": 1, "verb": "ack", "at": 1.0}) + '\n[1]\n{"e": "try"')
    assert [each.kind for each in judge(tmp_path)] == [Kind.DAMAGED] * 3


def test_spans_say_how_much_of_a_time_is_in_them(rng: random.Random) -> None:
    for _ in range(50):
        some = [(begin, begin + rng.randrange(5)) for begin in rng.choices(range(40), k=rng.randrange(8))]
        spans, seconds = Spans(some), {second for begin, end in some for second in range(begin, end)}
        for begin, end in itertools.combinations(range(45), 2):
            assert spans.within(begin, end) == len(seconds & {*range(begin, end)})
            assert spans.touches(begin, end) == any(one <= end and begin <= other for one, other in some)
