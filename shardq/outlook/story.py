"""The story of a message, event by event, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from shardq.model.event import Event
from shardq.model.wording import number, span
from shardq.outlook.message import ordinal
from shardq.outlook.names import name_of
from shardq.outlook.sentence import Parts

KIND_NAMES: Final = {
    "written": "Written",
    "delivered": "Delivered",
    "replaced": "Replaced",
    "acked": "Done",
    "nacked": "Given back",
    "recovered": "Given back",
    "lease_ended": "Its lease ended",
    "rejected": "Rejected",
    "dead": "Dead",
    "no_room": "No room",
    "deleted": "Deleted",
    "redriven": "Sent again",
    "hastened": "Hastened",
    "expired": "Expired",
    "cancelling": "Cancelled",
    "cancelled": "Cancelled",
    "purged": "Purged",
    "vanished": "Vanished",
}
"""The name of each kind of event of a message."""

KIND_WORDS: Final = {
    "replaced": "a write with its unique key gave it another payload",
    "recovered": "uncounted: its reader never got it",
    "lease_ended": "and nobody had extended it: its worker was gone, or took too long",
    "rejected": "it is a dead letter",
    "dead": "it had all of its deliveries, and is a dead letter",
    "deleted": "as a dead letter",
    "redriven": "from the dead letters",
    "hastened": "tried again before its delay was over",
    "expired": "its deadline was over before it was delivered",
    "cancelling": "while it was worked on: it is not delivered again",
    "vanished": "its entry was deleted by hand",
}
"""The text for kinds that have nothing else to say."""

LAST_KINDS: Final = frozenset({"acked", "deleted", "expired", "cancelled", "purged", "vanished"})
"""Events after which there is no more of a message."""

_BAD_KINDS: Final = frozenset({"nacked", "lease_ended", "rejected", "dead", "no_room"})
FIRST_EVENTS: Final = 5
LAST_EVENTS: Final = 25
"""Events that are shown of a longer story: the first and the last ones."""


class ToldEvent(NamedTuple):
    """One event: when, what, more of it in words, who did it ('': that is not known), and what it looks like."""

    at: float
    kind: str
    says: str
    text: Parts
    client: str
    css: str


def story_of(events: Sequence[Event]) -> list[ToldEvent]:
    """Return the events of one message for display, the first and the last ones if there are many.

    Charges while a handler ran are left out: how long it ran is shown at its end.
    """
    events = [each for each in events if each.kind != "charged"]
    told = [_told(each, events[at - 1] if at else None) for at, each in enumerate(events)]
    if len(told) <= FIRST_EVENTS + LAST_EVENTS + 1:
        return told
    left_out = len(told) - FIRST_EVENTS - LAST_EVENTS
    more = ToldEvent(told[FIRST_EVENTS].at, "more", "And so on", [f"{number(left_out)} events more"], "", "more")
    return [*told[:FIRST_EVENTS], more, *told[-LAST_EVENTS:]]


def _told(event: Event, before: Event | None) -> ToldEvent:
    css = "failed" if event.kind in _BAD_KINDS else event.kind
    return ToldEvent(
        event.time, event.kind, KIND_NAMES.get(event.kind, event.kind), _text(event, before), event.client, css
    )


def _text(event: Event, before: Event | None) -> Parts:
    tell = _TOLD.get(event.kind)
    return [*(tell(event, before) if tell else [KIND_WORDS.get(event.kind, "")]), *_ran(event), *_who(event)]


def _ran(event: Event) -> Parts:
    """Return for how long its handler ran, if that is known."""
    if event.ran_ms is None:
        return []
    return [f"{'' if event.kind == 'acked' else ', '}after it ran for {span(event.ran_ms / 1000)}"]


def _written(event: Event, _: Event | None) -> Parts:
    when = f"for later, due in {left}" if (left := _left(event)) else "for now"
    return [when, f", a call of {name_of(event.task, 80)}" if event.task else ""]


def _nacked(event: Event, _: Event | None) -> Parts:
    return [f"to be tried again in {left}" if (left := _left(event)) else "to be tried again at once"]


def _no_room(event: Event, _: Event | None) -> Parts:
    return ["among the dead letters", f"; tried again in {left}" if (left := _left(event)) else ""]


def _left(event: Event) -> str:
    return "" if event.due is None or event.due <= event.time else span(event.due - event.time)


def _delivered(event: Event, before: Event | None) -> Parts:
    count = "" if event.count <= 1 else f"for the {ordinal(event.count)} time, "
    since = None
    if before is not None:
        since = before.due if before.due is not None and before.kind != "delivered" else before.time
    waited = "" if since is None else f"{span(max(0.0, event.time - since))} after it could be"
    return [(count + waited).removesuffix(", ")]


def _who(event: Event) -> Parts:
    """Return who asked for it, if that is another one than the client that did it, and why."""
    found: Parts = [f", by {name_of(event.by)}"] if event.by and event.by != event.client else []
    return [*found, f": {name_of(event.note, 200)}"] if event.note else found


_TOLD: Final[Mapping[str, Callable[[Event, Event | None], Parts]]] = {
    "written": _written,
    "delivered": _delivered,
    "nacked": _nacked,
    "no_room": _no_room,
}
