"""How a queue is, in one sentence."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

VerdictKind: TypeAlias = Literal[
    "redis_full", "no_worker", "paused", "failing", "flood", "grows", "flows", "quiet", "idle"
]
"""Which rule gave the verdict, in the order in which they are tried: the first that holds speaks.

"quiet": nothing waits, and little was done lately. "idle": there is nothing in the queue, and nobody reads it.
"""

VERDICT_KINDS: Final[tuple[VerdictKind, ...]] = (
    "redis_full", "no_worker", "paused", "failing", "flood", "grows", "flows", "quiet", "idle",
)  # fmt: skip

Severity: TypeAlias = Literal["bad", "pause", "warn", "good"]
"""How much it needs you: "bad" at once, "pause" if it was forgotten, "warn" soon, "good" not at all."""

SEVERITIES: Final[tuple[Severity, ...]] = ("bad", "pause", "warn", "good")


class Verdict(msgspec.Struct, frozen=True):
    """How a queue is, in one sentence, by rules over its numbers of the instant `time`.

    `sentence` is plain text, and `second` says why, or what would change it ('' if there is no more to say). `bold` are
    the parts of the sentence that a page shows bold, each from where to where. `moments` are those that say a time, in
    the process's zone: from where to where, and which time, so that a page can say it in the zone of who reads. `since`
    is the time of the server at which it began, None if nobody knows. `facts` are the numbers and names that the
    sentence is made of.

    `Queue.verdict` returns one, of the queue whose name is `queue`. `kind` is the rule that spoke, and `severity` how
    much it needs you: "bad", "pause", "warn" or "good".
    """

    queue: str
    time: float
    kind: VerdictKind
    severity: Severity
    sentence: str
    second: str = ""
    bold: tuple[tuple[int, int], ...] = ()
    since: float | None = None
    facts: dict[str, int | float | str | None] = {}
    moments: tuple[tuple[int, int, float], ...] = ()
