"""Each error can be copied, and told to another process, with all that it holds."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable

import pytest

from shardq import errors
from shardq.errors import ShardqError
from tests.surface import differences, error_classes

FULL = errors.QueueFull("full", bound="max_len", limit=5, used=3, others=2, retry_after=1.5)
HOLDING: dict[str, ShardqError] = {
    "DurabilityUnknown": errors.DurabilityUnknown("written", "1-1-1"),
    "MessageDead": errors.MessageDead("dead", "why"),
    "MessageRefused": errors.MessageRefused("refused", {"UNKNOWN_QUEUE": 2}, ["a", "b"], "no queue"),
    "PartlyDone": errors.PartlyDone("three", 3),
    "PartlyPublished": errors.PartlyPublished({"q": "1-1-1", "r": FULL}, FULL),
    "PartlyWritten": errors.PartlyWritten(["1-1-1", FULL], FULL),
    "QueueFull": FULL,
    "UniqueConflict": errors.UniqueConflict("another", "1-1-1"),
}
"""One of each that is made of more than its text."""
PLAIN = {name: kind for name, kind in error_classes().items() if not inspect.isfunction(kind.__init__)}


def pickled(error: ShardqError) -> ShardqError:
    """What another process gets."""
    told = pickle.loads(pickle.dumps(error))  # noqa: S301 (our own)
    assert isinstance(told, ShardqError)
    return told


def test_one_of_each_error_is_made() -> None:
    assert differences([*HOLDING, *PLAIN], error_classes()) == []


@pytest.mark.parametrize("again", [copy.copy, pickled])
def test_an_error_stays_what_it_is(again: Callable[[ShardqError], ShardqError]) -> None:
    """A pool of processes breaks by one that cannot be told to its parent."""
    for error in (*HOLDING.values(), *(kind("why") for kind in PLAIN.values())):
        error.__dict__["index"] = 7  # as an operation notes of a batch
        other = again(error)
        assert other is not error
        assert (type(other), str(other), repr(vars(other))) == (type(error), str(error), repr(vars(error)))
