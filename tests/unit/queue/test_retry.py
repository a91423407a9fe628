"""retry_until: what is tried again, until when, and how honestly a call ends."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import pytest

from shardq.errors import BackendError, BackendTimeout, OutcomeUnknown, OutOfMemory
from shardq.ops.queue.retry import TRANSIENT, Same, ask, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Ask, Call, Refused, Sleep, Step, Unanswered
from shardq.protocol.scripts import load
from shardq.testing import ManualClock
from tests.unit.driving import Driven, drive

REPEATED: dict[bool, Call | Ask] = {False: Ask(("FIRST",), changes=True), True: Ask(("AGAIN",), changes=True)}


def run(answers: list[Any], *, until: float = 10.0) -> Any:
    """Persist with these answers, the last one for ever; what was done."""
    clock = ManualClock()
    told: Iterator[Any] = iter(answers)
    last: list[Any] = [None]

    def answer(_: Step) -> Any:
        last[0] = next(told, last[0])
        return last[0]

    return drive(retry_until(REPEATED.__getitem__, until, clock), answer, clock)


def test_an_answer_is_returned_as_it_is() -> None:
    assert (run([b"OK"]).result, run([b"OK"]).steps) == (b"OK", [Ask(("FIRST",))])


def test_a_plain_command_is_about_its_first_argument_unless_another_key_is_named(
    clock: ManualClock, state: QueueState
) -> None:
    first = drive(ask(state, "XLEN", "stream"), lambda _: 3, clock)
    named = drive(ask(state, "XINFO", "STREAM", "stream", key="stream"), lambda _: [], clock)
    assert (first.result, first.steps) == (3, [Ask(("XLEN", "stream"), "stream")])
    assert named.steps == [Ask(("XINFO", "STREAM", "stream"), "stream")]


@pytest.mark.parametrize("code", sorted(TRANSIENT))
def test_a_refusal_that_passes_is_tried_again_after_a_pause(code: str) -> None:
    done = run([Refused(code, "..."), Refused(code, "..."), b"OK"])
    assert done.result == b"OK"
    assert [type(step) for step in done.steps] == [Ask, Sleep, Ask, Sleep, Ask]
    assert Ask(("AGAIN",)) not in done.steps  # a refused call certainly did not happen


@pytest.mark.parametrize("sent", [False, True])
def test_a_lost_call_is_repeated_and_says_whether_it_may_have_happened(sent: bool) -> None:
    done = run([Unanswered("lost", sent=sent), Refused("LOADING", ""), b"OK"])
    calls = [step for step in done.steps if isinstance(step, Ask)]
    assert calls == [REPEATED[False], REPEATED[sent], REPEATED[sent]]


def test_pauses_grow_and_stay_bounded() -> None:
    done = run([Unanswered("lost", sent=False)] * 40 + [b"OK"], until=1000)
    pauses = [step.seconds for step in done.steps if isinstance(step, Sleep)]
    assert len(pauses) == 40
    assert max(pauses) <= 1.0
    assert max(pauses[:3]) <= 0.08


def test_nothing_happened_is_said_only_when_it_is_certain() -> None:
    with pytest.raises(BackendTimeout, match="nothing was changed"):
        run([Unanswered("no route", sent=False)])
    with pytest.raises(BackendTimeout, match="LOADING"):
        run([Refused("LOADING", "")])
    with pytest.raises(OutcomeUnknown, match="may have happened"):
        run([Unanswered("reset", sent=True), Unanswered("no route", sent=False)])


LOOKS: dict[str, Call | Ask] = {"a verb that only reads": Call(load("len"), ("key",)), "a command": Ask(("TIME",))}


@pytest.mark.parametrize("step", LOOKS.values(), ids=LOOKS)
def test_a_call_that_only_reads_has_changed_nothing_however_it_ends(step: Call | Ask) -> None:
    lost = Unanswered("reset", sent=True)

    def ended(*replies: Any) -> Driven[Any]:
        clock, answers = ManualClock(), chain(replies, repeat(lost))
        return drive(retry_until(lambda _: step, 1.0, clock), lambda _: next(answers), clock)

    with pytest.raises(BackendTimeout, match="nothing was changed"):
        ended()
    with pytest.raises(BackendError, match="denies") as caught:
        ended(lost, Refused("NOPERM", ""))
    assert type(caught.value) is BackendError


def test_a_call_that_only_looks_by_a_verb_that_can_write_says_what_did_not_happen() -> None:
    clock = ManualClock()
    call = Call(load("open"), ("key",))
    tries = retry_until(lambda _: call, 1.0, clock, looks="it only looked")
    with pytest.raises(BackendTimeout, match=r"\(reset\); it only looked"):
        drive(tries, lambda _: Unanswered("reset", sent=True), clock)


def test_it_gives_up_at_the_deadline_and_not_much_before() -> None:
    clock = ManualClock()
    with pytest.raises(BackendTimeout):
        drive(retry_until(REPEATED.__getitem__, 5.0, clock), lambda _: Refused("BUSY", ""), clock)
    assert 4.0 <= clock.monotonic() <= 5.0


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("OOM", OutOfMemory, "nothing was written"),
        ("WRONGTYPE", BackendError, "another type"),
        ("NOPERM", BackendError, "denies"),
        ("NOAUTH", BackendError, "into the URL"),
        ("WRONGPASS", BackendError, "into the URL"),
        ("ERR", BackendError, "refused the call"),
    ],
)
def test_a_refusal_that_does_not_pass_ends_the_call_at_once(code: str, kind: type[BackendError], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        run([Refused(code, "text")])
    assert isinstance(caught.value.__cause__, Refused)
    assert type(caught.value) is kind


def test_a_refusal_after_a_try_that_may_have_happened_says_so() -> None:
    with pytest.raises(OutcomeUnknown, match="may have happened; now Redis refused it: OOM"):
        run([Unanswered("reset", sent=True), Refused("OOM", "")])
    with pytest.raises(OutOfMemory):
        run([Unanswered("no route", sent=False), Refused("OOM", "")])


def test_a_try_that_may_have_happened_is_repeated_only_while_it_would_be_known() -> None:
    clock = ManualClock()
    lost = Unanswered("reset", sent=True)
    with pytest.raises(OutcomeUnknown):
        drive(retry_until(REPEATED.__getitem__, 1000.0, clock, remembered=30.0), lambda _: lost, clock)
    assert 20 < clock.monotonic() <= 30


def test_a_machine_that_is_suspended_between_two_tries_makes_no_other() -> None:
    clock, asked = ManualClock(), list[Step]()
    op = retry_until(REPEATED.__getitem__, 1000.0, clock, remembered=30.0)
    asked.append(next(op))
    asked.append(op.throw(Unanswered("reset", sent=True)))
    clock.advance(31)
    with pytest.raises(OutcomeUnknown):
        op.send(None)
    assert [type(step) for step in asked] == [Ask, Sleep]


def test_a_call_that_is_the_same_each_time_knows_whether_it_was_repeated() -> None:
    call = Same(Call(load("purge"), ("key",)))
    clock, answers = ManualClock(), iter([Refused("LOADING", ""), Unanswered("reset", sent=True), 7])
    seen: list[bool] = []

    def answer(_: Step) -> Any:
        seen.append(call.repeated)
        return next(answers)

    assert drive(retry_until(call, 10.0, clock), answer, clock).result == 7
    assert seen == [False, False, True]
