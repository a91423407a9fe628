"""Delete dead letters for good that are named: by their ids, or as `dead` returned them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from shardq.arguments import iterable, text
from shardq.errors import ConfigError
from shardq.model import DeadLetter, MessageId
from shardq.model.dead_letter import letters_of
from shardq.ops.queue.numbered import numbered, spelled
from shardq.ops.queue.opening import require_queue
from shardq.ops.queue.outcome import part_of
from shardq.ops.queue.sequences import ProducerSequence
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.ops.queue.who import NOBODY, Who

LETTERS_A_CALL: Final = 100


def deletion(
    state: QueueState,
    letters: Sequence[DeadLetter] | None,
    message_ids: Iterable[str] | None,
    timeout: float | None = None,
    who: Who = NOBODY,
) -> Op[int]:
    """Return the operation that deletes what is named. ConfigError if nothing is named, or both are."""
    if letters is not None and message_ids is None:
        return delete_letters(state, letters_of(letters), timeout, who)
    if message_ids is not None and letters is None:
        return delete_by_id(state, message_ids, timeout, who)
    raise ConfigError(
        "say which dead letters, in one way: by letters, by ids or by a Where, such as Where(state='dead') for all"
    )


def delete_by_id(
    state: QueueState, message_ids: Iterable[str], timeout: float | None = None, who: Who = NOBODY
) -> Op[int]:
    """Delete the dead letters with these message ids. Return how many there were."""
    names = [text("an id", each) for each in iterable("ids", message_ids, "message ids")]
    for each in names:
        MessageId.parse(each)
    return (yield from _delete(state, names, lambda page: (len(page), *page), timeout, who))


def delete_letters(
    state: QueueState, letters: Sequence[DeadLetter], timeout: float | None = None, who: Who = NOBODY
) -> Op[int]:
    """Delete these dead letters. Return how many were still there."""
    return (yield from _delete(state, [each.entry_id for each in letters], lambda page: (0, *page), timeout, who))


def _delete(
    state: QueueState,
    names: Sequence[str],
    rest: Callable[[Sequence[str]], tuple[int | str, ...]],
    timeout: float | None,
    who: Who,
) -> Op[int]:
    deleted, said = 0, who.said_by(state)
    yield from require_queue(state, state.until(timeout))
    for page in _pages(names):
        until = state.until(timeout)

        def make(sequence: ProducerSequence, until: float = until, page: Sequence[str] = page) -> Call:
            number = spelled(state, sequence, until)
            return Call.on(state.keys, "delete_dead", (said, number, "", 0, *rest(page)))

        (_, told), _ = yield from part_of(deleted, numbered(state, make, until))
        deleted += int(told.split(b"|")[0])
    return deleted


def _pages(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), LETTERS_A_CALL):
        yield names[start : start + LETTERS_A_CALL]
