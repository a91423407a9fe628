"""Failures: tries that failed, in groups."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

FailureReason: TypeAlias = Literal[
    "retry", "dead", "rejected", "lease ended", "time limit", "process died", "no such task", "cannot decode"
]
"""How a try failed."""


class Failure(msgspec.Struct, frozen=True):
    """All tries that failed in one way: of one `task` ('' for messages that are no calls), with one class of error.

    Times are seconds since the epoch, by the server's clock. `error_type` is the class of the error ('' where none was
    named, as of a lease that ended). `retried` counts tries after which the message is delivered again, ever since
    `first`; `dead` counts dead letters of the group that are there now; `last` is when the last try failed, of the
    message `newest`. `minutes` has how many tries failed in each twelfth of the last hour (5 minutes each), the oldest
    first. `recent` counts those of the last 10 minutes, `tenants_lately` how many tenants these were of (a large number
    is an estimate from their codes, 64 at most). `tenants` are up to five of them. `trace` is the newest traceback,
    frames without values, '' if none was sent.

    `Queue.failures` returns them. `reason` is how the tries failed, such as "retry" or "time limit".
    """

    task: str
    error_type: str
    reason: FailureReason
    retried: int
    dead: int
    first: float
    last: float
    newest: str
    minutes: tuple[int, ...]
    recent: int
    tenants: tuple[str | bytes, ...]
    tenants_lately: int
    trace: str = ""
