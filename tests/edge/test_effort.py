"""The level of compression follows what everything waits for: the link, the processor, or nothing."""

from __future__ import annotations

from shardq.edge.compression import Compressor
from shardq.edge.effort import FAST_LEVEL, LOOK_INTERVAL, USUAL_LEVEL, Effort


def looks(effort: Effort, begins: float, share: float, *, waits: float = 0.6) -> float:
    """Three seconds in which compressing takes a *share* of the time, and sending *waits* for another."""
    for tenth in range(1, 31):
        effort.spent(share / 10)
        effort.waited(waits / 10)
        effort.look(begins + tenth / 10)
    return begins + 3


def test_it_rises_while_messages_wait_and_the_processor_does_not() -> None:
    effort = Effort(3)
    now = looks(effort, 100.0, 0.05)
    assert effort.level == USUAL_LEVEL
    now = looks(effort, now, 0.5, waits=0.2)
    assert effort.level == USUAL_LEVEL, "it takes longer now, as it must, and less waits"
    looks(effort, now, 0.9)
    assert effort.level == 3


def test_it_stays_where_nothing_waits_for_the_link_or_compressing_takes_its_time() -> None:
    for share, waits in ((0.05, 0.0), (0.05, 0.4), (0.4, 0.6), (0.9, 0.6)):
        effort = Effort(3)
        looks(effort, 100.0, share, waits=waits)
        assert effort.level == 3


def test_it_falls_when_the_backlog_is_gone() -> None:
    effort = Effort(3)
    now = looks(effort, 100.0, 0.05)
    looks(effort, now, 0.05, waits=0.0)
    assert effort.level == 3


def test_it_rises_and_falls_by_steps_and_to_the_last_only_while_the_processor_is_idle() -> None:
    effort, now, seen = Effort(3), 100.0, list[tuple[bool, bool]]()
    for share, waits in ((0.1, 0.6), (0.1, 0.6), (0.3, 0.6), (0.1, 0.6), (0.7, 0.2), (0.9, 0.2), (0.1, 0.05)):
        effort.spent(share * LOOK_INTERVAL)
        effort.waited(waits * LOOK_INTERVAL)
        effort.look(now)
        now += LOOK_INTERVAL
        seen.append((effort.uses_prefix, effort.is_hard))
    assert seen == [
        (False, False), (True, False), (True, False), (True, True), (True, True), (True, False), (False, False),
    ]  # fmt: skip


def test_it_never_falls_below_what_was_asked_for() -> None:
    effort = Effort(12)
    now = looks(effort, 100.0, 0.05)
    assert effort.level == 12
    looks(effort, now, 0.95)
    assert effort.level == 12


def test_it_falls_while_the_processor_is_the_limit_and_comes_back() -> None:
    effort = Effort()
    assert effort.level == USUAL_LEVEL
    now = looks(effort, 100.0, 0.95, waits=0.0)
    assert effort.level == FAST_LEVEL
    now = looks(effort, now, 0.3, waits=0.0)
    assert effort.level == FAST_LEVEL, "the usual one would take all of the time"
    looks(effort, now, 0.1, waits=0.0)
    assert effort.level == USUAL_LEVEL


def test_without_a_link_that_holds_something_up_there_is_no_prefix() -> None:
    """It takes memory of both ends."""
    effort, now, seen = Effort(), 100.0, list[bool]()
    for waits in (0.05, 0.6, 0.05):
        now = looks(effort, now, 0.5, waits=waits)
        seen.append(effort.uses_prefix)
    assert seen == [False, True, False]


def test_a_full_link_gets_a_prefix_also_where_the_usual_level_takes_its_time() -> None:
    """A fast frame with a prefix takes less."""
    effort = Effort()
    looks(effort, 100.0, 0.5, waits=0.2)
    assert (effort.uses_prefix, effort.is_hard) == (True, False)


def test_a_higher_level_makes_smaller_frames() -> None:
    payload = b"".join(b"%d:%d;" % (number % 977, number * number % 7919) for number in range(3000))
    compressor = Compressor(1)
    sizes = []
    for level in (1, USUAL_LEVEL):
        compressor.level = level
        frame = compressor.frame(payload)
        assert frame is not None
        sizes.append(len(frame))
    assert sizes[1] < sizes[0]
