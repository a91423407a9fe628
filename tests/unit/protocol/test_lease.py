"""The lease: tokens that never repeat, and a holder that stops believing early."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shardq.ops.queue.server_time import earliest_grant, safe_deadline
from shardq.ops.read.command import new_holder
from shardq.protocol.lease import place_of


def test_holders_never_repeat_and_fit_a_token() -> None:
    holders = {new_holder() for _ in range(1000)}
    assert len(holders) == 1000
    assert all(len(holder) == 22 and ":" not in holder for holder in holders)  # 128 bits


def test_a_token_begins_with_the_place() -> None:
    assert [place_of(f"{place}:1-1:1:n") for place in ("0", "4095", "d", "l")] == ["0", "4095", "d", "l"]


@given(st.floats(0, 1e9), st.floats(0.05, 604_800))
def test_a_holder_stops_believing_before_the_lease_ends(sent: float, visibility: float) -> None:
    margin = sent + visibility - safe_deadline(sent, visibility)
    assert margin >= max(0.0019, visibility * 0.0099)
    assert margin <= max(0.0021, visibility * 0.0101)


@given(st.floats(0, 1e6), st.floats(0, 1), st.floats(0, 5), st.floats(0, 1), st.floats(-0.0005, 0.0005))
def test_a_grant_is_never_thought_later_than_it_was(
    sent: float, there: float, waited: float, back: float, drift: float
) -> None:
    """Whatever the request and the reply took, and though the clocks run at speeds that differ by 0.05 %."""
    zero = 1.7e9  # what the server's clock showed when the request came
    granted = zero + waited * (1 + drift) - 0.0005  # in whole milliseconds, rounded down
    found = earliest_grant(sent, zero, granted, sent + there + waited + back)
    assert sent <= found <= sent + there + waited + 1e-6


@given(st.floats(0, 1e6), st.floats(0, 5), st.floats(-1e6, 1e6))
def test_a_grant_lies_between_question_and_answer_though_the_servers_clock_jumps(
    sent: float, took: float, jump: float
) -> None:
    assert sent <= earliest_grant(sent, 1.7e9, 1.7e9 + jump, sent + took) <= sent + took
