"""However many ask for the numbers, they are looked up and written down once a second, and all share the same bytes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from shardq.exporter.listener import HttpRequest
from shardq.exporter.page import FRESH_SECONDS, MetricsPage
from shardq.telemetry.instruments import CONSUMED
from shardq.telemetry.sample import Sample
from shardq.testing.clock import ManualClock

ASKED = HttpRequest("/metrics", "", {}, "")


def test_a_page_is_shared_for_a_second() -> None:
    clock, counts = ManualClock(), iter(range(1, 9))
    page = MetricsPage(lambda: [Sample(CONSUMED, (), next(counts))], clock)
    first = page(ASKED).body
    assert isinstance(first, bytes)
    assert first.endswith(b" 1\n")
    clock.advance(FRESH_SECONDS * 0.9)
    assert page(ASKED).body is first
    clock.advance(FRESH_SECONDS * 0.2)
    assert page(ASKED).body.endswith(b" 2\n")  # type: ignore[arg-type]


def test_those_who_ask_at_once_wait_for_one_page() -> None:
    gate, made = threading.Event(), list[int]()

    def samples() -> list[Sample]:
        gate.wait(60)
        made.append(1)
        return [Sample(CONSUMED, (), 1)]

    page = MetricsPage(samples, ManualClock())
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(page, ASKED) for _ in range(8)]
        gate.set()
        assert len({id(each.result().body) for each in asked}) == 1
    assert made == [1]


def test_an_error_is_not_shared() -> None:
    tries = list[int]()

    def samples() -> list[Sample]:
        tries.append(1)
        if len(tries) == 1:
            raise ZeroDivisionError
        return [Sample(CONSUMED, (), 1)]

    page = MetricsPage(samples, ManualClock())
    with pytest.raises(ZeroDivisionError):
        page(ASKED)
    assert page(ASKED).body
