"""Single writes and `write_many`, driven by hand: chunks, sequences, positions, and how each call may end."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

from shardq.codec import Codecs
from shardq.errors import (
    BackendTimeout,
    ConfigError,
    DurabilityUnknown,
    OutcomeUnknown,
    OutOfMemory,
    PartlyWritten,
    QueueFull,
)
from shardq.model import Written
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op, Refused, Step, Unanswered, Underreplicated
from shardq.ops.queue.view import QueueView
from shardq.ops.sharing.caller import own
from shardq.ops.write.outgoing import CHUNK_BYTES, CHUNK_MESSAGES, Outgoing, chunks, compose
from shardq.ops.write.write import Writes, write_many
from shardq.testing import ManualClock
from tests.unit.driving import drive, state_of
from tests.unit.wire import WriteHead, write_head

ONE = Outgoing("t", "b", b"x")
FIXED = 14  # keys that a write declares beside the streams
SMALL = [Outgoing(f"t{number}", "b", b"x") for number in range(600)]


class Server:
    """Stores what comes, in stream 0; *answers* go first, one per call of `write`."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self._n = 0
        self.writes: list[Call] = []

    def __call__(self, step: Step) -> Any:
        assert isinstance(step, Call)
        if step.script.name == "open":
            return [b"OK", 1, [b"epoch", b"2", b"streams", b"4", b"wanted", b"4", b"created", b"1", b"id", b"1-x"]]
        self.writes.append(step)
        if self._answers:
            return self._answers.pop(0)
        before, count = self._n, write_head(step).messages
        self._n += count
        return [b"OK", b"1700000000000|%d|%s" % (before, b",".join([b"0"] * count))]

    @property
    def heads(self) -> list[WriteHead]:
        """How each call begins."""
        return [write_head(call) for call in self.writes]


def write(state: QueueState, message: Outgoing, timeout: float | None = None) -> Op[str]:
    """Store one message as a caller who is alone does."""
    (result,) = yield from Writes(state).op([message], state.until(timeout), None)
    return own(result)


# --- chunks --------------------------------------------------------------------------------------------------------


def test_chunks_keep_the_order_and_the_bounds() -> None:
    parts = chunks(SMALL)
    assert [message for part in parts for message in part] == SMALL
    assert [len(part) for part in parts] == [CHUNK_MESSAGES, CHUNK_MESSAGES, 100]


def test_a_chunk_is_bounded_in_bytes_too() -> None:
    large = [Outgoing("t", "b", bytes(CHUNK_BYTES // 3)) for _ in range(7)]
    assert [len(part) for part in chunks(large)] == [2, 2, 2, 1]
    assert chunks([]) == []


@pytest.mark.parametrize(("choices", "most"), [(1, 250), (32, 250), (64, 125), (4096, 1), (10**6, 1)])
def test_messages_of_wide_shards_come_in_smaller_chunks(choices: int, most: int) -> None:
    """What a call costs grows with the streams that it may choose from."""
    assert max(len(part) for part in chunks(SMALL, choices)) == most


def test_a_message_larger_than_a_chunk_goes_alone() -> None:
    huge = Outgoing("t", "b", bytes(CHUNK_BYTES + 1))
    assert [len(part) for part in chunks([ONE, huge, ONE])] == [1, 1, 1]


# --- sequences -----------------------------------------------------------------------------------------------------


def test_a_repeated_call_is_the_same_call(state: QueueState, clock: ManualClock) -> None:
    server = Server(Unanswered("reset", sent=True), Refused("LOADING", ""))
    assert drive(write(state, ONE), server, clock).result == "1700000000000-1-0"
    assert len(server.writes) == 3
    assert server.writes[0] == server.writes[1] == server.writes[2]


def test_calls_that_follow_one_another_share_a_lane(state: QueueState, clock: ManualClock) -> None:
    server = Server()
    drive(write(state, ONE), server, clock)
    drive(write_many(state, SMALL), server, clock)
    assert len({head.lane for head in server.heads}) == 1
    assert [head.number for head in server.heads] == [1, 2, 3, 4]


def test_calls_at_the_same_time_have_lanes_of_their_own(state: QueueState, clock: ManualClock) -> None:
    server, other = Server(), Server()

    def answer(step: Step) -> Any:
        if not other.writes:
            drive(write(state, ONE), other, clock)  # while the first call is under way
        return server(step)

    drive(write(state, ONE), answer, clock)
    assert server.heads[0].lane != other.heads[0].lane


def test_a_lane_is_free_again_after_a_failure(state: QueueState, clock: ManualClock) -> None:
    with pytest.raises(OutcomeUnknown):
        drive(write(state, ONE, 1.0), lambda _: Unanswered("reset", sent=True), clock)
    server = Server()
    drive(write(state, ONE), server, clock)
    assert [(head.lane, head.number) for head in server.heads] == [(f"p:{state.producer}:0", 2)]


def test_a_fork_is_another_producer(state: QueueState, clock: ManualClock) -> None:
    server = Server()
    drive(write(state, ONE), server, clock)
    state.forked("host-2")
    drive(write(state, ONE), server, clock)
    assert server.heads[0].lane != server.heads[1].lane


# --- positions and keys --------------------------------------------------------------------------------------------


def declared(call: Call) -> list[int]:
    """The streams that a call declares, behind the keys that every write has."""
    return [int(key.rpartition(":s")[2]) for key in call.keys[FIXED:]]


def numbered(call: Call, index: int) -> list[int]:
    """The streams that message *index* may go to, as the call has them: by their positions among the declared ones."""
    streams, positions = declared(call), call.args[1 + 4 * index]
    size = 1 if len(streams) <= 255 else 2
    assert isinstance(positions, bytes)
    return [streams[int.from_bytes(positions[at : at + size]) - 1] for at in range(0, len(positions), size)]


def test_a_call_declares_the_streams_of_its_shards_and_no_others(clock: ManualClock) -> None:
    state, server = state_of(clock, streams=64, streams_per_shard=3), Server()
    drive(write_many(state, SMALL[:5]), server, clock)
    [call] = server.writes
    shards = [state.shard(message.shard_key) for message in SMALL[:5]]
    assert call.keys[:FIXED] == state.keys.of("write", call.script.keys)
    assert set(declared(call)) == {number for each in shards for number in each}
    assert [numbered(call, index) for index in range(5)] == [[*shard] for shard in shards]


@pytest.mark.parametrize("streams", [64, 255, 256, 1000])
def test_a_large_batch_declares_every_stream_once_and_positions_have_the_size_they_need(
    clock: ManualClock, streams: int
) -> None:
    state, server = state_of(clock, streams=streams, streams_per_shard=3), Server()
    messages = [Outgoing(f"tenant-{n}", "b", b"x") for n in range(250)]
    drive(write_many(state, messages), server, clock)
    [call] = server.writes
    assert len({*declared(call)}) == len(declared(call))
    assert [numbered(call, index) for index in range(250)] == [[*state.shard(each.shard_key)] for each in messages]


def test_a_message_has_four_arguments_or_six_where_one_of_the_call_has_headers_or_options(
    state: QueueState, clock: ManualClock
) -> None:
    """Shard, shard key, tag, payload, and then headers and options: `write` counts by the stride."""
    server = Server()
    drive(write_many(state, [Outgoing("a", "b", b"1"), Outgoing("c", "m", b"2")]), server, clock)
    drive(write_many(state, [Outgoing("a", "b", b"1"), Outgoing("c", "m", b"2", headers=b"h")]), server, clock)
    plain, full = server.writes
    assert (write_head(plain).stride, plain.args[2:5], plain.args[6:]) == (4, ("a", "b", b"1"), ("c", "m", b"2"))
    assert (write_head(full).stride, full.args[2:7]) == (6, ("a", "b", b"1", b"", ""))
    assert full.args[8:] == ("c", "m", b"2", b"h", "")


def test_a_call_whose_queue_is_looked_up_by_another_thread_meanwhile_is_refused(
    state: QueueState, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shards may be of the old epoch: then so must the epoch be that it names."""
    dealt = QueueView.shard

    def overtaken(own: QueueView, key: str | bytes) -> tuple[int, ...]:
        found = dealt(own, key)
        state.view = replace(own, epoch="2")
        return found

    monkeypatch.setattr(QueueView, "shard", overtaken)
    server = Server()
    drive(write(state, ONE), server, clock)
    assert server.heads[0].epoch == "1"


# --- how it may end ------------------------------------------------------------------------------------------------


def test_an_old_idea_of_the_queue_is_renewed_and_the_call_repeated(state: QueueState, clock: ManualClock) -> None:
    server = Server([b"EPOCH"])
    done = drive(write(state, ONE), server, clock)
    assert done.calls == ["write", "open", "write"]
    assert [head.epoch for head in server.heads] == ["1", "2"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ([b"FULL", b"max_len", b"1:", 5, 5, b""], QueueFull),
        ([b"FULL", b"max_dedup", b"1:4", 5, 4, b"100"], QueueFull),
        ([b"STALE"], OutcomeUnknown),
    ],
)
def test_a_refused_write_raises_what_it_means(
    state: QueueState, clock: ManualClock, answer: list[bytes], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        drive(write(state, ONE), Server(answer), clock)


def test_too_few_replicas_are_said_with_the_id(state: QueueState, clock: ManualClock) -> None:
    with pytest.raises(DurabilityUnknown) as caught:
        drive(write(state, ONE), Server(Underreplicated([b"OK", b"1700000000000|6|0"], 0)), clock)
    assert caught.value.result == "1700000000000-7-0"


def test_a_batch_tells_how_each_message_went(state: QueueState, clock: ManualClock) -> None:
    server = Server([b"FULL", b"max_len", b",".join(b"%d:1" % number for number in range(1, 251)), 5, 3, b""])
    with pytest.raises(PartlyWritten) as caught:
        drive(write_many(state, SMALL), server, clock)
    kinds = [type(result) for result in caught.value.results]
    assert kinds == [QueueFull] * 250 + [Written] * 350


def test_a_refusal_tells_whose_share_is_used_up(state: QueueState, clock: ManualClock) -> None:
    with pytest.raises(QueueFull, match="'t' has 800 of them, others have 70: write later") as caught:
        drive(write(state, ONE), Server([b"FULL", b"max_dedup", b"1:800", 1000, 870, b"2500"]), clock)
    full = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - a child process tells its parent like this
    assert (full.bound, full.limit, full.used, full.others, full.retry_after) == ("max_dedup", 1000, 800, 70, 2.5)


def test_a_batch_stops_where_the_server_cannot_be_reached(state: QueueState, clock: ManualClock) -> None:
    server = Server()

    def answer(step: Step) -> Any:
        return server(step) if not server.writes else Unanswered("no route", sent=False)

    with pytest.raises(PartlyWritten) as caught:
        drive(write_many(state, SMALL), answer, clock)
    kinds = [type(result) for result in caught.value.results]
    assert kinds == [Written] * 250 + [BackendTimeout] * 350


def test_a_batch_stops_where_the_server_refuses_and_says_why_of_the_rest(state: QueueState, clock: ManualClock) -> None:
    server = Server()

    def answer(step: Step) -> Any:
        return server(step) if not server.writes else Refused("OOM", "command not allowed")

    with pytest.raises(PartlyWritten) as caught:
        drive(write_many(state, SMALL), answer, clock)
    assert [type(result) for result in caught.value.results] == [Written] * 250 + [OutOfMemory] * 350


# --- composing -----------------------------------------------------------------------------------------------------


def test_times_are_composed_in_milliseconds(state: QueueState) -> None:
    message = compose(state, Codecs(), b"x", "t", delay=1.5, deadline=2.0004, dedup_key="a|b")
    assert (message.delay, message.deadline, message.options) == (1500, 2000, "1500|2000|a|b")
    assert compose(state, Codecs(), b"x", "t", delay=0).options == ""


def test_the_users_headers_win_over_the_trace_context(state: QueueState) -> None:
    message = compose(state, Codecs(), b"x", "t", headers={"a": "user"}, context={"a": "context", "b": "context"})
    assert message.headers == b"\x82\xa1a\xa4user\xa1b\xa7context"


def test_a_payload_over_the_bound_is_refused(state: QueueState) -> None:
    with pytest.raises(ConfigError, match="max_payload"):
        compose(state, Codecs(), bytes(1001), "t")
