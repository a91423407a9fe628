"""The sign of life of a process that has no worker yet."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from shardq.testing import ManualClock
from shardq.worker import liveness
from shardq.worker.liveness import LivenessThread, show_alive
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sign each few milliseconds."""
    monkeypatch.setattr(liveness, "PULSE", 0.005)


def test_there_is_one_at_once_and_then_others_until_the_end() -> None:
    seen: list[int] = []
    with LivenessThread(lambda: seen.append(1), 10, ManualClock()) as given:
        assert seen
        eventually(lambda: len(seen) > 3)
    assert not given._thread.is_alive()
    assert [each for each in threading.enumerate() if each.name == "shardq-liveness"] == []


def test_there_is_none_when_the_process_does_not_go_round() -> None:
    seen: list[int] = []
    clock = ManualClock()
    looks = threading.Semaphore(0)

    class Watched(ManualClock):
        def monotonic(self) -> float:
            looks.release()
            return clock.monotonic()

    with LivenessThread(lambda: seen.append(1), 10, Watched()) as given:
        clock.advance(10)
        for _ in range(5):
            assert looks.acquire(timeout=30)
        before = len(seen)
        for _ in range(10):
            assert looks.acquire(timeout=30)
        assert len(seen) == before
        given.still_going()
        eventually(lambda: len(seen) > before)


def test_one_that_fails_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    show_alive(tmp_path / "nowhere" / "alive")
    assert "sign of life failed" in caplog.text
    show_alive(None)
    show_alive(str(tmp_path / "alive"))
    assert (tmp_path / "alive").exists()
