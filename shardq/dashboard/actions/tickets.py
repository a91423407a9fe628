"""Tickets: a person may act only by one, which came with what the dialog said, and only once."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shardq.clock import Clock
from shardq.dashboard.actions.dialog import DialogAction, DialogText
from shardq.dashboard.actions.given import Given
from shardq.dashboard.people import Person

VALID: Final = 600.0
"""Seconds for which a ticket is valid."""
MAX_TICKETS: Final = 2_000
"""Tickets of all people together."""
MAX_TICKETS_A_PERSON: Final = 40
"""Tickets of one person: the oldest of them ends with the next, so nobody takes those of others away."""


@dataclass(frozen=True, slots=True)
class DialogTicket:
    """The ticket of an action that a person saw: about `given`, with the values `texts` of its fields."""

    person: Person
    action: DialogAction
    given: Given
    texts: Mapping[str, str]
    said: DialogText
    ends: float


class Tickets:
    """The tickets that are valid, by their secrets. They are in the memory of this process alone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tickets: OrderedDict[str, DialogTicket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tickets)

    def issue(
        self, person: Person, action: DialogAction, given: Given, texts: Mapping[str, str], said: DialogText
    ) -> str:
        """Return the secret of a new ticket."""
        self._make_room(person)
        token = secrets.token_urlsafe(24)
        ends = self._clock.monotonic() + VALID
        self._tickets[token] = DialogTicket(person, action, given, texts, said, ends)
        return token

    def look(self, token: str, person: Person, action: str) -> DialogTicket | None:
        """Return the ticket with this secret, if it is valid, and of this person and action."""
        found = self._tickets.get(token)
        if found is None or found.ends <= self._clock.monotonic():
            return None
        return found if found.person == person and found.action.name == action else None

    def take(self, token: str) -> None:
        """End a ticket: it is used."""
        self._tickets.pop(token, None)

    def _make_room(self, person: Person) -> None:
        now = self._clock.monotonic()
        while self._tickets and next(iter(self._tickets.values())).ends <= now:
            self._tickets.popitem(last=False)
        own = [token for token, each in self._tickets.items() if each.person.name == person.name]
        for token in own[: max(0, len(own) - MAX_TICKETS_A_PERSON + 1)]:
            del self._tickets[token]
        while len(self._tickets) >= MAX_TICKETS:
            self._tickets.popitem(last=False)
