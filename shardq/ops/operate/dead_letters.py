"""Delete dead letters for good: by their ids, or those that a filter selects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from shardq.arguments import iterable, seconds, text, whole
from shardq.errors import ConfigError
from shardq.model import DeadLetter, MessageId
from shardq.model.dead_letter import letters_of
from shardq.ops.inspect.dead_letters import dead_letters
from shardq.ops.queue.numbered import numbered, spelled
from shardq.ops.queue.opening import require_queue
from shardq.ops.queue.outcome import part_of
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.sequences import ProducerSequence
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.sharding import key_bytes

PER_CALL: Final = 100
PAGE: Final = 100
LONGEST: Final = 100 * 365 * 86_400.0


class Filter(msgspec.Struct, frozen=True):
    """Which dead letters are meant: those that meet all that is not None.

    `shard_key` is theirs; `reason` and `error` stand in theirs; they died at least `older_than` seconds ago.
    """

    shard_key: str | bytes | None = None
    reason: str | None = None
    error: str | None = None
    older_than: float | None = None

    def __post_init__(self) -> None:
        """ConfigError for a bad one."""
        if self.shard_key is not None:
            key_bytes(self.shard_key)
        for name in ("reason", "error"):
            if getattr(self, name) is not None:
                text(name, getattr(self, name))
        if self.older_than is not None:
            seconds("older_than", self.older_than, 0, LONGEST)

    def selects(self, letter: DeadLetter, now: float) -> bool:
        """Return whether *letter* is meant, at the server's time *now*."""
        return (
            (self.shard_key is None or key_bytes(self.shard_key) == key_bytes(letter.shard_key or b"\0"))
            and (self.reason is None or self.reason in letter.reason)
            and (self.error is None or self.error in letter.last_error)
            and (self.older_than is None or now - letter.died_at >= self.older_than)
        )


def deletion(
    state: QueueState,
    letters: Sequence[DeadLetter] | None,
    message_ids: Iterable[str] | None,
    chosen: Filter,
    limit: int | None,
    timeout: float | None,
) -> Op[int]:
    """Return the operation that deletes what is named. ConfigError if that is several things at once, or nothing."""
    ways = (letters is not None) + (message_ids is not None) + (chosen != Filter())
    if ways > 1 or (limit is not None and chosen == Filter()):
        raise ConfigError("name letters, or ids, or a filter with or without a limit: one of them")
    if letters is not None:
        return delete_letters(state, letters_of(letters), timeout)
    if message_ids is not None:
        return delete_by_id(state, message_ids, timeout)
    return delete_selected(state, chosen, limit, timeout)


def delete_by_id(state: QueueState, message_ids: Iterable[str], timeout: float | None = None) -> Op[int]:
    """Delete the dead letters with these message ids. Return how many there were."""
    names = [text("an id", each) for each in iterable("ids", message_ids, "message ids")]
    for each in names:
        MessageId.parse(each)
    return (yield from _delete(state, names, lambda page: (len(page), *page), timeout))


def delete_letters(state: QueueState, letters: Sequence[DeadLetter], timeout: float | None = None) -> Op[int]:
    """Delete these dead letters. Return how many were still there."""
    return (yield from _delete(state, [each.entry_id for each in letters], lambda page: (0, *page), timeout))


def delete_selected(
    state: QueueState, chosen: Filter, limit: int | None = None, timeout: float | None = None
) -> Op[int]:
    """Delete the oldest dead letters that a filter selects, at most *limit*. Each call has *timeout* seconds.

    Letters that come meanwhile are left.
    """
    if chosen == Filter():
        raise ConfigError("say which dead letters: letters, ids, shard_key, reason, error, or older_than=0 for all")
    left = 2**62 if limit is None else whole("limit", limit, 1, 2**40)
    deleted, after = 0, "-"
    now = yield from _now(state, timeout)
    while left and (letters := (yield from part_of(deleted, dead_letters(state, PAGE, after, timeout)))):
        after = letters[-1].entry_id
        page = [each for each in letters if each.died_at <= now and chosen.selects(each, now)][:left]
        done = yield from part_of(deleted, delete_letters(state, page, timeout))
        # By those that were meant: if another client has deleted some of them, no others take their place.
        deleted, left = deleted + done, left - len(page)
        # Letters come by their time of death, so all that follow died since.
        if letters[-1].died_at > now:
            break
    return deleted


def _now(state: QueueState, timeout: float | None) -> Op[float]:
    until = state.until(timeout)
    yield from require_queue(state, until)
    call = Call.on(state.keys, "limits", (0, 1))
    reply = yield from retry_until(always(call), until, state.clock)
    return int(reply[0]) / 1000


def _delete(
    state: QueueState,
    names: Sequence[str],
    rest: Callable[[Sequence[str]], tuple[int | str, ...]],
    timeout: float | None,
) -> Op[int]:
    deleted = 0
    yield from require_queue(state, state.until(timeout))
    for page in _pages(names):
        until = state.until(timeout)

        def make(sequence: ProducerSequence, until: float = until, page: Sequence[str] = page) -> Call:
            number = spelled(state, sequence, until)
            return Call.on(state.keys, "delete_dead", (state.client, number, "", 0, *rest(page)))

        (_, told), _ = yield from part_of(deleted, numbered(state, make, until))
        deleted += int(told.split(b"|")[0])
    return deleted


def _pages(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), PER_CALL):
        yield names[start : start + PER_CALL]
