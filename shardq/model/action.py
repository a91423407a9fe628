"""Something that an operator has under way: redrive, delete, cancel or retry now by a filter."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from shardq.model.where import Where

ActionKind: TypeAlias = Literal["redrive", "delete_dead", "cancel", "retry_now"]
ActionState: TypeAlias = Literal["running", "stopping", "stopped", "done", "failed", "abandoned"]
"""The state of an action. "abandoned": its process was silent for 30 s, and another may take it over.

One that has to stop, and whose process is silent since, is "stopped".
"""


class ActionStatus(msgspec.Struct, frozen=True):
    """One action on a queue, as all clients see it. Times are seconds since the epoch, by the server's clock.

    `done` counts messages that it acted on, `left` about how many are to come (None: not known yet), `passed` those
    that it chose and left alone, since they had changed by then. `rate` is messages a second, None for as fast as it
    can. `by` and `note` say who asked, and why. `problem` says why it failed. `via` names the program that
    began it and continues it by itself after a restart: "dashboard" for the page, '' for all others.

    `Queue.actions` returns them: `id` names an action, `kind` says what it does to the messages that `where` selects,
    at most `limit` of them (None: all), and `state` how far it is. It was `started` then, and `heard` of last.
    """

    id: str
    kind: ActionKind
    where: Where
    state: ActionState
    by: str
    note: str
    rate: float | None
    limit: int | None
    started: float
    heard: float
    done: int
    passed: int
    left: int | None
    problem: str = ""
    via: str = ""

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return self.state in ("stopped", "done", "failed")
