"""What a worker says when Redis goes away and comes back."""

from __future__ import annotations

import logging

import pytest

from shardq import BackendTimeout, OutcomeUnknown, QueueMissing
from shardq.errors import BackendError
from shardq.worker.trouble import Trouble

AWAY = BackendTimeout("no answer from Redis after 5 tries (Connection refused); nothing was changed")


@pytest.fixture
def read() -> Trouble:
    """Reads of the queue `jobs`."""
    return Trouble("queue 'jobs' cannot be read", "queue 'jobs' can be read again")


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines so far, and none of them later."""
    assert all(record.levelno == logging.WARNING for record in caplog.records)
    lines = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return lines


def test_each_change_is_one_sentence(read: Trouble, caplog: pytest.LogCaptureFixture) -> None:
    read.succeeded()
    assert told(caplog) == []
    for _ in range(3):
        assert read.failed(AWAY) >= 0
    assert told(caplog) == [f"queue 'jobs' cannot be read, and the worker tries again until it can: {AWAY}"]
    read.succeeded()
    read.succeeded()
    assert told(caplog) == ["queue 'jobs' can be read again, after 3 tries that failed"]
    read.failed(AWAY)
    read.succeeded()
    assert told(caplog)[1:] == ["queue 'jobs' can be read again, after 1 try that failed"]


def test_the_cause_is_told_and_not_what_became_of_the_call(read: Trouble, caplog: pytest.LogCaptureFixture) -> None:
    """That a read may have happened is for those who call it."""
    doubt = OutcomeUnknown("a read got no answer and may have happened")
    doubt.__cause__ = AWAY
    read.failed(doubt)
    assert told(caplog) == [f"queue 'jobs' cannot be read, and the worker tries again until it can: {AWAY}"]
    read.succeeded()
    doubt.__cause__ = None
    read.failed(doubt)
    assert told(caplog)[1].endswith("until it can: a read got no answer and may have happened")


def test_a_queue_that_is_gone_when_redis_is_back_is_told(read: Trouble, caplog: pytest.LogCaptureFixture) -> None:
    missing = QueueMissing("there is no queue 'jobs'")
    for error in (AWAY, BackendError("Redis is loading"), missing, missing, AWAY):
        read.failed(error)
    assert [line.partition("until it can: ")[2] for line in told(caplog)] == [str(AWAY), str(missing), str(AWAY)]
