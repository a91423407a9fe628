"""How a queue is, as scenes say it: the words of its verdict, with the colours of what they mean."""

from __future__ import annotations

from typing import Final

from shardq.dashboard.marked import Linked, Toned, toned
from shardq.dashboard.numbers import NumbersLook
from shardq.model.verdict import Verdict, VerdictKind
from shardq.outlook.sentence import Bold, Parts, parts_of

BAD_NEWS: Final = ("no worker", "No worker", "Redis is full", "Redis is nearly full", "Messages fail", "fails")
"""Bold words that are bad news."""
SOON_SECONDS: Final = 3.0
"""Seconds of waiting that trouble nobody."""
TAGS: Final[dict[VerdictKind, tuple[str, str]]] = {"paused": ("pause", "paused"), "no_worker": ("bad", "no worker")}
"""In place of the time in which a queue drains: the look of a tag, and its text."""


def coloured(verdict: Verdict, parts: Parts, others: float | None = None) -> Parts:
    """Return the parts of a sentence that has this *verdict* in it. *others* wait this many seconds in a flood."""
    if verdict.severity == "bad":
        return bad_news(parts)
    if verdict.kind == "flows":
        return toned(parts, "good", "Flows")
    if verdict.kind == "flood" and others is not None and others < SOON_SECONDS:
        last = next((at for at in range(len(parts) - 1, -1, -1) if isinstance(parts[at], Bold)), None)
        return [Toned(part, "good") if at == last and part[:1].isdigit() else part for at, part in enumerate(parts)]
    return parts


def bad_news(parts: Parts) -> Parts:
    """Return the parts of a sentence. Those that are bad news have their colour."""
    return toned([piece for part in parts for piece in _divided(part)], "bad", *BAD_NEWS)


def said_of(look: NumbersLook) -> Parts:
    """Return the sentence of a queue's verdict."""
    return coloured(look.verdict, parts_of(look.verdict), others_wait(look))


def others_wait(look: NumbersLook) -> float | None:
    """Return how many seconds all but the largest shard key wait; None if nobody knows."""
    found = look.outlook
    return found.others_pickup if found.others_pickup is not None else found.others_served_in


def paused_for(look: NumbersLook) -> float | None:
    """Return for how many seconds the whole queue is paused; None if it is not, or nobody knows."""
    stats = look.stats
    if look.facts.paused_until is None or stats.paused_since is None:
        return None
    return max(0.0, stats.time - stats.paused_since)


def tag_of(verdict: Verdict) -> dict[str, str] | None:
    """Return what stands in place of the time in which a queue drains."""
    found = TAGS.get(verdict.kind)
    return None if found is None else {"css": found[0], "text": found[1]}


def linked(parts: Parts, name: str, to: str) -> Parts:
    """Return the parts; the one that is this bold *name* leads somewhere."""
    return [Linked(part, to) if isinstance(part, Bold) and part == name else part for part in parts]


def _divided(part: str) -> Parts:
    """Return what fails apart from that it fails, so that this has a colour of its own."""
    if isinstance(part, Bold) and part.endswith(" fails"):
        return [Bold(part.removesuffix(" fails")), " ", Bold("fails")]
    return [part]
