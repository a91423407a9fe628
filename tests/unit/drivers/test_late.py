"""Calls of several operations that went to one node together, and are late: each of these goes on in a thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from shardq.drivers.sync import Begun
from shardq.ops.queue.steps import Unanswered

SOON = 30.0


class Played:
    """What was asked on a link: its answers come when `comes` is set."""

    def __init__(self, ended: list[Any] | Exception) -> None:
        self._ended, self.gathered = ended, 0
        self.is_awaited, self.comes = Event(), Event()

    def answers(self, limit: float) -> list[Any]:
        """Wait for the answers."""
        assert limit == SOON
        self.gathered += 1
        self.is_awaited.set()
        assert self.comes.wait(SOON)
        if isinstance(self._ended, Exception):
            raise self._ended
        return self._ended


@pytest.mark.parametrize("ended", [[1, 2, 3], Unanswered("the server closed the connection", sent=True)])
def test_the_answers_are_gathered_once_for_all(ended: Any) -> None:
    """A second thread at the same connection would take what the first waits for."""
    played = Played(ended)
    begun = Begun(played, SOON)  # type: ignore[arg-type]
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(begun.answers) for _ in range(3)]
        assert played.is_awaited.wait(SOON)
        played.comes.set()
        assert [each.exception(SOON) or each.result() for each in asked] == [ended] * 3
    assert played.gathered == 1
