"""List dead letters, oldest first."""

from __future__ import annotations

import re

from shardq.errors import ConfigError
from shardq.model import DeadLetter
from shardq.ops.inspect.stats import require_settings
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.protocol.replies import dead_letter


def dead_letters(state: QueueState, count: int, after: str = "-", timeout: float | None = None) -> Op[list[DeadLetter]]:
    """Return up to *count* dead letters, oldest first, that come after the entry id *after*.

    QueueMissing as of `statistics`.
    """
    if not isinstance(after, str) or not _ENTRY_ID.fullmatch(after):
        raise ConfigError("after must be the entry_id of a dead letter, or '-' for the start")
    call = Call.on(state.keys, "dead", (after, count))
    reply = yield from retry_until(always(call), state.until(timeout), state.clock)
    if reply == b"NOQUEUE":
        require_settings(state)
        return []
    return [dead_letter(row) for row in reply]


_ENTRY_ID = re.compile(r"-|\d{1,16}-\d{1,20}", re.ASCII)
