"""A client's response to a queue with other settings than it was given: warn, raise, or apply its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from shardq.arguments import one_of
from shardq.errors import ConfigError
from shardq.model import QueueConfig
from shardq.ops import operate
from shardq.ops.queue.opening import Differences, create, warn_of
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.queue.view import QueueView

OnMismatch = Literal["warn", "raise", "apply"]


def declare(state: QueueState, timeout: float | None = None) -> Op[QueueConfig]:
    """Create the queue if it does not exist. Return its settings."""
    state.creates = True
    yield from create(state, state.until(timeout))
    return state.config


def refuse(state: QueueState, differences: Differences) -> None:
    """Raise ConfigError, in this call and in each after it, as long as the settings differ."""
    # As if it were not known: so the next call looks it up, and is refused as well.
    state.view, state.opened = QueueView(), False
    told = ", ".join(f"{name}={actual!r} instead of {requested!r}" for name, (requested, actual) in differences.items())
    raise ConfigError(
        f"queue {state.keys.name!r} has {told}: settings belong to the queue; change them by configure(), resize() or "
        "`shardq apply`, or let this client do so with on_mismatch='apply' (but for a queue with partitions)"
    )


def apply(state: QueueState, differences: Differences) -> Op[None]:
    """Give the queue the settings of this client, once.

    If another client changes them after that, its settings hold: two versions of a program that run at the same time
    do not take turns. ConfigError if the queue cannot have them now, in this call and in each after it.
    """
    if state.config.partitions != 1:
        _refuse_in_one(state, differences)
        return
    wanted = {name: requested for name, (requested, _) in differences.items()}
    streams = wanted.pop("streams", None)
    try:
        yield from _give(state, wanted, streams)
    except ConfigError:
        state.view, state.opened = QueueView(), False
        raise
    state.on_mismatch = warn_of


def _refuse_in_one(state: QueueState, differences: Differences) -> None:
    """Refuse what would be given to the head of a queue with partitions alone. Their number is a resize's matter."""
    if differences.keys() - {"partitions"}:
        refuse(state, differences)
    warn_of(state, differences)
    state.on_mismatch = warn_of


def _give(state: QueueState, wanted: dict[str, Any], streams: int | None) -> Op[None]:
    if wanted:
        yield from operate.queues.configure(state, wanted)
    if streams is not None:
        yield from operate.queues.resize(state, streams)


MISMATCHES: Final[Mapping[str, Callable[[QueueState, Any], Op[None] | None]]] = {
    "warn": warn_of, "raise": refuse, "apply": apply,
}  # fmt: skip


def on_mismatch(name: str) -> Callable[[QueueState, Any], Op[None] | None]:
    """Return what *name* stands for. ConfigError if it is none of "warn", "raise" and "apply"."""
    return MISMATCHES[one_of("on_mismatch", name, MISMATCHES)]
