"""What a journal says that every message is now: it must be what the queue's raw keys say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shardq import Event, Queue
from shardq.protocol.keys import QueueKeys
from tests.conformance.census import Census

WAITING, IN_FLIGHT, CANCELLING, DEAD, GONE = "waiting", "in flight", "cancelling", "dead", "gone"
MOVES: dict[str, tuple[set[str | None], str]] = {
    "written": ({None}, WAITING),
    "delivered": ({WAITING}, IN_FLIGHT),
    "acked": ({IN_FLIGHT}, GONE),
    "nacked": ({IN_FLIGHT}, WAITING),
    "replaced": ({WAITING}, WAITING),
    "recovered": ({IN_FLIGHT}, WAITING),
    "lease_ended": ({IN_FLIGHT}, WAITING),
    "charged": ({IN_FLIGHT}, IN_FLIGHT),
    "rejected": ({IN_FLIGHT}, DEAD),
    "dead": ({IN_FLIGHT, WAITING}, DEAD),
    "no_room": ({IN_FLIGHT, WAITING}, WAITING),
    "redriven": ({DEAD}, WAITING),
    "hastened": ({WAITING}, WAITING),
    "deleted": ({DEAD}, GONE),
    "expired": ({WAITING}, GONE),
    "cancelling": ({IN_FLIGHT}, CANCELLING),
    "cancelled": ({WAITING, CANCELLING}, GONE),
    "purged": ({WAITING}, GONE),
    "vanished": ({IN_FLIGHT, WAITING}, GONE),
}
OF_NO_MESSAGE = {
    "configured", "weighted", "limited", "paused", "resumed", "stopped", "plan_set", "plan_deleted", "joined", "left",
}  # fmt: skip
KEYLESS = {"lease_ended", "recovered", "cancelled", "vanished", "charged"}


@dataclass
class Known:
    """One message."""

    state: str | None = None
    count: int = 0
    due: float | None = None
    shard_key: str | bytes | None = None
    kinds: list[str] = field(default_factory=list)


class Replay:
    """Follows the journal of a queue, a page after the other, and holds that nothing happens that cannot."""

    def __init__(self, queue: Queue) -> None:
        self.queue, self.position = queue, 0
        self.events: list[Event] = []
        self.known: dict[str, Known] = {}

    def follow(self, page: int = 1000) -> None:
        """Read on to the end."""
        while True:
            found = self.queue.journal(page, after=self.position)
            assert found.lost == 0
            assert len(found.events) <= page
            assert [event.number for event in found.events] == [
                (self.position or found.position - len(found.events)) + n for n in range(1, len(found.events) + 1)
            ]
            for event in found.events:
                self._apply(event)
            self.position = found.position
            if self.position == found.latest:
                return

    def _apply(self, event: Event) -> None:
        self.events.append(event)
        if event.kind in OF_NO_MESSAGE:
            assert event.message_id == ""
            return
        each = self.known.setdefault(event.message_id, Known())
        each.kinds.append(event.kind)
        before, after = MOVES[event.kind]
        assert each.state in before, (event, each)
        each.state, each.due = after, event.due
        if event.kind == "written":
            each.shard_key = event.shard_key
            place = event.message_id.split("-", 2)[2]
            assert event.stream == (int(place) if place.isdigit() else None)
        if event.kind == "replaced":
            each.shard_key = event.shard_key
        assert event.shard_key == each.shard_key or (event.shard_key is None and event.kind in KEYLESS), event
        if event.kind == "delivered":
            each.count += 1
            assert event.count == each.count, (event, each)
        elif event.kind == "recovered" or (event.kind, event.count) == ("nacked", each.count - 1):
            each.count -= 1  # such a nack is uncounted, as the count of the next delivery shows
        if event.kind in {
            "acked",
            "nacked",
            "lease_ended",
            "rejected",
            "dead",
            "redriven",
            "hastened",
            "recovered",
            "replaced",
        }:
            assert event.count == each.count, (event, each)

    def problems(self, raw: Any, census: Census) -> list[str]:
        """Where it differs from a full count."""
        keys = self.queue.state.keys
        told = {message_id: each.state for message_id, each in self.known.items() if each.state != GONE}
        found = states(raw, keys, census)
        wrong = [f"{each} is {found.get(each)}, the journal says {told.get(each)}: {self._kinds(each)}"
                 for each in sorted(found.keys() | told.keys()) if found.get(each) != told.get(each)]  # fmt: skip
        named = names(census)
        wrong += [f"{named(handle)} is delayed, the journal says nothing of it" for handle in census.delayed
                  if self.known[named(handle)].due is None]  # fmt: skip
        return wrong

    def _kinds(self, message_id: str) -> list[str]:
        return self.known[message_id].kinds if message_id in self.known else []


def names(census: Census) -> Callable[[str], str]:
    """From a handle to the id that the writer was given."""
    return lambda handle: census.names.get(handle) or "-".join(reversed(handle.split(":")))


def states(raw: Any, keys: QueueKeys, census: Census) -> dict[str, str]:
    """Every message of the queue by its id, and what it is."""
    named = names(census)
    found = {named(handle): WAITING for handle in (*census.new, *census.returned, *census.delayed, *census.held)}
    found |= {named(handle): CANCELLING if handle in census.cancelled else IN_FLIGHT for handle in census.leased}
    return found | {fields[b"i"].decode(): DEAD for _, fields in raw.xrange(keys.dead)}
