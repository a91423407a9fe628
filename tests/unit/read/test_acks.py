"""The acks that a read takes along, driven by hand: each way in which the ack, the read or both can fail."""

from __future__ import annotations

from typing import Any

import pytest

from shardq.errors import BackendError, BackendTimeout, OutcomeUnknown, PartlyDone
from shardq.model import Received
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Batch, Call, Refused, Step, Unanswered, Wait
from shardq.ops.read.acks import Acks
from shardq.ops.read.look import fast_read
from shardq.ops.read.read import read
from shardq.ops.read.waiting import Outstanding
from shardq.ops.settle.command import MAX_ACKS_A_CALL
from shardq.ops.settle.settle import Settled, ack
from shardq.testing import ManualClock
from tests.unit.driving import Driven, drive, state_of
from tests.unit.wire import NOW, is_repeated, name_of, read_head
from tests.unit.wire import read_reply as found

ROW = [b"1700000000000-7", [b"k", b"t", b"b", b"x"]]
TOKEN = "0:1-1:1:holder::t"
LEASED = b"2:1700000000000-7:1:lost::t"  # what a read was granted whose reply was lost
LOST = Unanswered("reset", sent=True)
UNSENT = Unanswered("no route", sent=False)
BUSY = Refused("LOADING", "")
DENIED = Refused("NOPERM", "")


def acked(letters: str = "o") -> list[Any]:
    """What `settle` replies."""
    return [NOW, letters.encode()]


class Server:
    """Answers each verb by its own list, the last answer for ever; notes what came in which round trip."""

    def __init__(self, **answers: list[Any]) -> None:
        defaults: dict[str, list[Any]] = {
            "ack": [acked()], "read": [found()], "lost": [[b"", [LEASED]]], "give_back": [acked()],
        }  # fmt: skip
        self.answers = defaults | answers
        self.trips: list[list[str]] = []
        self.calls: list[Call] = []

    def __call__(self, step: Step) -> Any:
        if isinstance(step, Call):
            self.trips.append([name_of(step)])
            return self._answer(step)
        if isinstance(step, Batch):
            assert step.once, "what is refused must not run after the read"
            self.trips.append([name_of(call.call) for call in step.calls])
            return [self._answer(call.call) for call in step.calls]
        return None

    def _answer(self, call: Call) -> Any:
        self.calls.append(call)
        answers = self.answers[name_of(call)]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def of(self, verb: str) -> list[Call]:
        """The calls of one verb."""
        return [call for call in self.calls if name_of(call) == verb]

    @property
    def holders(self) -> list[str]:
        """The holders of its reads."""
        return [read_head(call).holder for call in self.of("read")]


def deliveries(count: int = 1) -> list[Received]:
    """Deliveries in flight, in one stream."""
    return [
        Received(f"1-{n}-0", "t", 1, 30.0, b"x", "", {}, "", 0, 0.0, f"0:1-{n}:1:holder::t")
        for n in range(1, count + 1)
    ]


@pytest.fixture(params=["operation", "look"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the operation makes the first look, or goes on from one that was made without it."""
    monkeypatch.setattr(Run, "looks", request.param == "look")


class Run:
    """A read with an ack, to its end."""

    looks = False

    def __init__(self, server: Server, count: int = 1, state: QueueState | None = None, **settings: Any) -> None:
        self.clock, self.server = ManualClock(), server
        self.state = state or state_of(self.clock)
        self.acks = Acks.of(deliveries(count))
        self.outstanding = Outstanding()
        self.done: Driven[list[Received]] = Driven()
        self.error: Exception | None = None
        self.wanted = {"block": 0.0, "visibility": None, "prefer": None, "timeout": 2} | settings
        try:
            if not (self.looks and self._look()):
                self._operate()
        except BackendError as error:
            self.error = error

    def _look(self) -> bool:
        wanted = {**self.wanted, "outstanding": self.outstanding, "acks": self.acks}
        look = fast_read(self.state, 1, **wanted)
        if look is None:
            return False
        step: Any = look.step
        self.done.result = look.rows(self.server(step))
        if self.done.result is not None:
            self.acks.results = {delivery.token: Settled.OK for _, _, delivery in self.acks.last}
        else:
            self._operate(look)
            self.done.steps.insert(0, step)
        return True

    def _operate(self, look: Any = None) -> None:
        op = read(self.state, 1, outstanding=self.outstanding, acks=self.acks, made=look, **self.wanted)
        self.done = drive(op, self.server, self.clock)

    @property
    def results(self) -> list[Settled]:
        return list(self.acks.results.values())


def test_both_go_out_together_the_ack_first() -> None:
    run = Run(Server(read=[found(ROW)]))
    assert run.server.trips == [["ack", "read"]]
    assert (run.results, len(run.done.result or [])) == ([Settled.OK], 1)


def test_an_empty_read_has_acked_all_the_same() -> None:
    run = Run(Server())
    assert (run.server.trips, run.done.result, run.results) == ([["ack", "read"]], [], [Settled.OK])


def test_the_ack_does_not_wait_for_a_message() -> None:
    run = Run(Server(), block=2.5)
    assert [len(trip) for trip in run.server.trips] == [2, 1, 1, 1]  # each later look is the read alone
    assert [type(step) for step in run.done.steps[:2]] == [Batch, Wait]
    assert run.results == [Settled.OK]


@pytest.mark.parametrize(("letter", "result"), [("l", Settled.LOST), ("c", Settled.CANCELLED)])
def test_a_lease_that_was_lost_does_not_cost_the_message_that_was_read(letter: str, result: Settled) -> None:
    run = Run(Server(ack=[acked(letter)], read=[found(ROW)]))
    assert (len(run.done.result or []), run.results, run.server.trips) == (1, [result], [["ack", "read"]])


@pytest.mark.parametrize(("failure", "again"), [(LOST, True), (UNSENT, False), (BUSY, False)])
def test_an_ack_without_an_answer_is_made_again_alone(failure: Exception, again: bool) -> None:
    run = Run(Server(ack=[failure, acked()], read=[found(ROW)]))
    assert run.server.trips == [["ack", "read"], ["ack"]]
    assert [is_repeated(call) for call in run.server.of("ack")] == [False, again]
    assert (len(run.done.result or []), run.results) == (1, [Settled.OK])


@pytest.mark.parametrize("failure", [LOST, UNSENT, BUSY])
def test_a_read_without_an_answer_is_made_again_alone(failure: Exception) -> None:
    run = Run(Server(read=[failure, found(ROW)]))
    first, second = run.server.holders
    between = [["lost"], ["give_back"]] if failure is LOST else []
    assert run.server.trips == [["ack", "read"], *between, ["read"]]
    assert [call.args[0] for call in run.server.of("lost")] == [first] * (failure is LOST)
    assert [call.args[-1] for call in run.server.of("give_back")] == [LEASED] * (failure is LOST)
    assert first != second
    assert (len(run.done.result or []), run.results) == (1, [Settled.OK])


def test_if_neither_was_answered_the_ack_is_made_again_first() -> None:
    run = Run(Server(ack=[LOST, acked()], read=[LOST, found(ROW)]))
    assert run.server.trips == [["ack", "read"], ["ack"], ["lost"], ["give_back"], ["read"]]
    assert (len(run.done.result or []), run.results) == (1, [Settled.OK])


def test_a_server_that_does_not_know_the_scripts_gets_them_in_order() -> None:
    unknown = Refused("NOSCRIPT", "")
    run = Run(Server(ack=[unknown, acked()], read=[unknown, found(ROW)]))
    assert run.server.trips == [["ack", "read"], ["ack"], ["read"]]
    assert (run.clock.monotonic(), len(run.done.result or []), run.results) == (0, 1, [Settled.OK])


@pytest.mark.parametrize("failure", [Refused("NOSCRIPT", ""), LOST])
def test_an_ack_that_came_after_an_empty_read_may_have_made_room_so_the_read_looks_again(failure: Exception) -> None:
    run = Run(Server(ack=[failure, acked()], read=[found(), found(ROW)]))
    assert run.server.trips == [["ack", "read"], ["ack"], ["read"]]
    assert len(run.done.result or []) == 1


def test_if_the_ack_fails_for_good_what_was_read_is_given_back() -> None:
    run = Run(Server(ack=[DENIED], read=[found(ROW)]))
    assert type(run.error) is BackendError
    assert run.server.trips == [["ack", "read"], ["lost"], ["give_back"]]
    assert [run.server.of("lost")[0].args[0]] == run.server.holders
    assert (run.results, run.state.unsure) == ([], set())


@pytest.mark.parametrize(
    ("failure", "error"), [(LOST, OutcomeUnknown), (UNSENT, BackendTimeout), (BUSY, BackendTimeout)]
)
def test_the_error_says_what_is_known_of_the_ack(failure: Exception, error: type[Exception]) -> None:
    run = Run(Server(ack=[failure, UNSENT], read=[LOST]))
    assert type(run.error) is error
    assert run.server.trips[-2:] == [["lost"], ["give_back"]]  # what the lost reply may have granted
    assert run.results == []
    assert run.state.unsure == ({TOKEN} if failure is LOST else set())


def test_a_failed_ack_gives_nothing_back_where_nothing_can_have_been_read() -> None:
    run = Run(Server(ack=[DENIED], read=[DENIED]))
    assert run.server.trips == [["ack", "read"]]


def test_that_giving_back_fails_does_not_hide_why() -> None:
    run = Run(Server(ack=[DENIED], read=[found(ROW)], lost=[UNSENT]))
    assert type(run.error) is BackendError


def test_a_read_that_fails_does_not_undo_the_ack() -> None:
    run = Run(Server(read=[DENIED]))
    assert type(run.error) is BackendError
    assert (run.results, run.server.trips) == ([Settled.OK], [["ack", "read"]])


def test_an_ack_that_got_no_answer_is_a_repetition_whoever_makes_it_next() -> None:
    first = Run(Server(ack=[LOST, UNSENT]))
    assert type(first.error) is OutcomeUnknown
    server = Server(read=[found(ROW)])
    run = Run(server, state=first.state)
    assert [is_repeated(call) for call in server.of("ack")] == [True]
    assert (run.results, run.state.unsure) == ([Settled.OK], set())


def test_an_ack_that_was_cancelled_is_a_repetition_afterwards() -> None:
    clock, server, outstanding = ManualClock(), Server(), Outstanding()
    state = state_of(clock)
    op = read(state, 1, outstanding=outstanding, acks=Acks.of(deliveries()))
    assert isinstance(next(op), Batch)
    op.close()
    assert outstanding.holder  # so that what it was granted is given back
    results = drive(ack(state, deliveries()), server, clock)
    assert (results.result, is_repeated(server.calls[0]), state.unsure) == ([Settled.OK], True, set())


def test_what_is_read_while_the_ack_is_tried_again_can_be_given_back() -> None:
    clock, outstanding = ManualClock(), Outstanding()
    state = state_of(clock)
    op = read(state, 1, outstanding=outstanding, acks=Acks.of(deliveries()))
    batch = next(op)
    assert isinstance(batch, Batch)
    op.send([LOST, found(ROW)])
    op.close()
    assert outstanding.holder == read_head(batch.calls[1].call).holder
    assert state.unsure == {TOKEN}


def test_many_acks_are_bounded_calls_of_which_the_last_goes_with_the_read() -> None:
    many = MAX_ACKS_A_CALL + 50
    letters = [acked("o" * MAX_ACKS_A_CALL), acked("o" * 49 + "l")]
    run = Run(Server(ack=letters, read=[found(ROW)]), count=many)
    assert run.server.trips == [["ack"], ["ack", "read"]]
    assert (len(run.results), run.results.count(Settled.LOST)) == (many, 1)


def test_what_earlier_calls_acked_is_known_though_the_last_one_fails() -> None:
    run = Run(Server(ack=[acked("o" * MAX_ACKS_A_CALL), DENIED]), count=MAX_ACKS_A_CALL + 1)
    assert len(run.results) == MAX_ACKS_A_CALL
    assert isinstance(run.error, PartlyDone)
    assert (run.error.done, type(run.error.__cause__)) == (MAX_ACKS_A_CALL, BackendError)


def test_a_read_that_could_not_be_given_back_may_have_happened() -> None:
    run = Run(Server(read=[LOST], lost=[UNSENT]))
    assert type(run.error) is OutcomeUnknown
    assert run.results == [Settled.OK]


def test_a_read_that_was_given_back_kept_nothing() -> None:
    run = Run(Server(read=[LOST]))
    assert type(run.error) is BackendTimeout
    assert str(run.error).endswith("this read kept no message")


def test_a_queue_that_moved_is_looked_up_with_the_ack_done() -> None:
    clock, state = ManualClock(), state_of(ManualClock())
    server = Server(
        read=[[b"NOQUEUE"], found()],
        open=[
            [
                b"OK",
                1_700_000_000_000,
                [b"epoch", b"1", b"streams", b"4", b"wanted", b"4", b"created", b"1", b"id", b"1-x"],
            ]
        ],
    )
    done = drive(read(state, 1, acks=(acks := Acks.of(deliveries()))), server, clock)
    assert (done.result, list(acks.results.values())) == ([], [Settled.OK])
    assert server.trips == [["ack", "read"], ["open"], ["read"]]


def test_the_time_of_the_answer_is_noted() -> None:
    run = Run(Server())
    assert run.acks.answered_at == run.clock.monotonic()
