"""The server's clock as one client sees it: what is a jump, and what is only a late reply."""

from __future__ import annotations

import pytest

from shardq.ops.queue.server_time import Jump, ServerTime

NOW = 1_700_000_000_000


def seen(at: float = 100.0) -> ServerTime:
    """The clock was seen once, in a call without a delay."""
    return ServerTime.first(NOW, at, at)


@pytest.mark.parametrize(("went", "sent", "arrived"), [
    (10_000, 110, 110), (10_000, 110, 130), (30_000, 110, 130), (0, 100, 100), (990, 100, 100), (1_000_000, 1090, 1090),
])  # fmt: skip
def test_a_clock_that_went_as_ours_did_not_jump_however_late_the_reply(went: int, sent: float, arrived: float) -> None:
    after = seen().then(NOW + went, sent, sent, arrived)
    assert (after.ms, after.jump) == (NOW + went, None)


def test_a_forward_jump_is_told_until_the_server_has_heard_of_it() -> None:
    after = seen().then(NOW + 70_000, 110, 110, 110.5)
    assert after.jump == Jump(NOW, NOW + 70_000, 60_100)  # as long as it may have been: no lease is to end early
    assert after.steady == NOW + 70_000
    assert after.argument(111, 111).split()[3:] == ["jump", str(NOW), str(NOW + 70_000), "60100"]
    later = after.then(NOW + 71_000, 111, 111, 111)
    assert later.jump == after.jump
    assert later.reported(None).jump == after.jump
    assert later.reported(after.jump).jump is None


def test_a_backward_jump_begins_a_new_view_and_ends_what_was_to_be_told() -> None:
    ahead = seen().then(NOW + 70_000, 110, 110, 110)
    after = ahead.then(NOW + 11_000, 111, 111, 111)
    assert (after.ms, after.steady, after.jump) == (NOW + 11_000, NOW + 11_000, None)


def test_a_reply_that_another_thread_s_overtook_changes_nothing() -> None:
    last = seen()
    assert last.then(NOW - 40, 99.9, 99.9, 100.1) is last


def test_who_did_not_look_for_long_vouches_for_nothing_before() -> None:
    assert seen().then(NOW + 90_000, 190, 190, 190).steady == NOW
    assert seen().then(NOW + 110_000, 210, 210, 210).steady == NOW + 110_000


def test_a_call_says_what_the_clock_should_show_when_it_runs_and_how_exactly_that_is_known() -> None:
    assert seen().argument(110, 110) == f"{NOW + 11_100} {NOW} 1100"
    assert seen().argument(110, 111) == f"{NOW + 12_110} {NOW} 2110"
    wide = ServerTime.first(NOW, 100, 102)
    assert wide.argument(110, 110) == f"{NOW + 11_100} {NOW} 3100"


def test_a_machine_whose_clock_went_back_says_whole_numbers_all_the_same() -> None:
    assert seen().argument(40, 40) == f"{NOW + 1000} {NOW} 1000"
