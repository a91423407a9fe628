"""Problems of a queue: nobody reads it, its leases end by time, it was paused and forgotten."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from shardq.model.verdict import Verdict
from shardq.model.wording import moment, plural, share
from shardq.outlook.names import name_of

FORGOTTEN_AFTER: Final = 86_400.0
"""Seconds after which a pause without an end is taken for forgotten."""
ENDED_SHARE: Final = 0.01
"""A share of all deliveries whose leases ended by time, above which something is wrong."""
ENDED_ALWAYS: Final = 20
"""How many leases may end by time whatever the share is: those of a worker that dies do."""
MAX_NAMED: Final = 3
MAX_NUMBERS: Final = 8
"""How many numbers of partitions a finding shows."""
MAX_NOTE: Final = 200
"""Letters of a note that a finding shows."""


class Finding(NamedTuple):
    """One finding: `line` says what is wrong, `mend` what to do, and `queue` where ('' for the server).

    A client refuses a server with one that `is_fatal`.
    """

    name: str
    line: str
    mend: str
    queue: str = ""
    is_fatal: bool = False

    @property
    def label(self) -> str:
        """Return the name by which --accept leaves out this finding alone."""
        return f"{self.name}:{self.queue}" if self.queue else self.name


class Pause(NamedTuple):
    """A pause: of a shard key, or (None) the whole queue; since when, until when, by whom, and why.

    `since` is None if nobody knows. `until` is infinite if it has no end, and None if there is no pause.
    """

    shard_key: str | bytes | None
    since: float | None
    until: float | None
    by: str = ""
    note: str = ""


def of_reading(queue: str, verdict: Verdict, backlog: int) -> Iterator[Finding]:
    """Yield that nobody reads a queue in which messages wait, in the words of its verdict if that is what it says."""
    told = (
        verdict.sentence if verdict.kind == "no_worker" else f"no worker: {plural(backlog, 'message')} in the backlog."
    )
    mend = f"Start one: shardq worker HANDLER, and see with shardq workers {queue} whether it reads this queue here."
    yield Finding("no-worker", told, mend, queue)


def of_leases(queue: str, expired: int, delivered: int) -> Iterator[Finding]:
    """Yield that leases end by time again and again."""
    if expired > ENDED_ALWAYS and expired > ENDED_SHARE * delivered:
        yield Finding(
            "leases",
            f"{plural(expired, 'lease')} ended by time, {share(expired / max(delivered, 1))} of its deliveries.",
            "The work is done twice. Workers die, stand still, or take longer than the lease: look at shardq workers "
            f"{queue} and their memory, set a longer visibility_timeout, or extend leases in the handler.",
            queue,
        )


def of_silent(queue: str, away: Sequence[int]) -> Iterator[Finding]:
    """Yield that these partitions do not answer."""
    if away:
        some = ", ".join(map(str, away[:MAX_NUMBERS])) + (", …" if len(away) > MAX_NUMBERS else "")
        yield Finding(
            "partitions",
            f"{plural(len(away), 'partition')} of it did not answer: {some}.",
            "Its node is down, or out of reach: CLUSTER NODES names it. The other partitions continue. Writes whose "
            "shard keys have their home there fail, and its messages are not read, until it is back or a replica takes "
            "over.",
            queue,
        )


def of_pauses(queue: str, pauses: Iterable[Pause], now: float) -> Iterator[Finding]:
    """Yield that a queue, or tenants of it, are paused for more than a day, without an end."""
    endless = [each for each in pauses if each.until == math.inf and each.since is not None]
    old = [each for each in endless if now - (each.since or now) > FORGOTTEN_AFTER]
    for each in old:
        if each.shard_key is None:
            why = f" “{each.note[:MAX_NOTE]}”, says the pause." if each.note else ""
            yield Finding(
                "paused",
                f"{name_of(each.by or 'somebody')} paused it {moment(each.since, now)}, without an end.",
                f"Ask, then end it: shardq resume {queue}.{why}",
                queue,
            )
    keys = [each for each in old if each.shard_key is not None]
    if keys:
        first = min(keys, key=lambda each: each.since or 0.0)
        named = ", ".join(name_of(each.shard_key or "") for each in keys[:MAX_NAMED])
        more = f" and {len(keys) - MAX_NAMED:,} more" if len(keys) > MAX_NAMED else ""
        yield Finding(
            "paused",
            f"{plural(len(keys), 'tenant')} paused without an end, the first {moment(first.since, now)}.",
            f"They are {named}{more}. Ask {name_of(first.by or 'around')}, then end it: "
            f"shardq resume {queue} --tenant KEY.",
            queue,
        )
