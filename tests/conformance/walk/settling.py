"""Steps that settle: live leases and stale ones, singly and many at once, by either client."""

from __future__ import annotations

import random
from collections.abc import Callable

from shardq import Delivery, LeaseLost, MessageCancelled, MessageNotFound
from shardq.client import Queue
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.steps import Argument
from shardq.ops.settle import settle
from shardq.ops.settle.command import DUE, MAX_ACKS_A_CALL, settle_call
from shardq.ops.settle.settle import Settled
from shardq.protocol.lease import token_argument
from tests.conformance.walk.audit import UNIT, model_text
from tests.conformance.walk.base import SECONDS, Base, ensure, with_repeats
from tests.conformance.walk.model import DEAD, DELAYED, GONE, LEASED, WAITING, Known

ERRORS = ("", "boom", "no|good", "why not: 1,2")
KINDS = {"ack": "a", "nack": "n", "uncounted": "u", "reject": "r"}


class Settling(Base):
    """ack, nack, reject, extend, and cancel."""

    def ack(self, rng: random.Random) -> None:
        """One."""
        self._settle_one(rng, "ack")

    def nack(self, rng: random.Random) -> None:
        """One, at once or later."""
        self._settle_one(rng, "nack", rng.choice((0, 0, 1, 2)), rng.choice(ERRORS))

    def reject(self, rng: random.Random) -> None:
        """One."""
        self._settle_one(rng, "reject", 0, rng.choice(ERRORS[1:]))

    def extend(self, rng: random.Random) -> None:
        """One."""
        self._settle_one(rng, "extend", rng.randint(1, 3))

    def ack_many(self, rng: random.Random) -> None:
        """A batch, by either client; or all there is."""
        self._settle_many(rng, "ack")

    def nack_many(self, rng: random.Random) -> None:
        """A batch."""
        self._settle_many(rng, "nack", rng.choice((0, 0, 0, 1)), rng.choice(ERRORS))

    def nack_uncounted(self, rng: random.Random) -> None:
        """A batch, as if this delivery had not been."""
        self._settle_many(rng, "uncounted", rng.choice((0, 0, 1)), rng.choice(ERRORS[1:]))

    def reject_many(self, rng: random.Random) -> None:
        """A batch."""
        self._settle_many(rng, "reject", 0, rng.choice(ERRORS[1:]))

    def cancel(self, rng: random.Random) -> None:
        """A message that waits, is in flight, or is gone."""
        pool = self.model.living() if rng.random() < 0.8 else [*self.model.messages.values()]
        if not pool:
            return
        known, queue = rng.choice(pool), self.who(rng)
        self.say(f"cancel {model_text(known, self.model)}")
        if known.state == DEAD:
            said = queue.cancel(known.message_id)
            ensure(said == "dead", f"cancel: {model_text(known, self.model)} was {said}")
            return
        if known.state == GONE or self.model.is_over(known):
            known.state = GONE
            try:
                queue.cancel(known.message_id)
            except MessageNotFound:
                return
            ensure(False, f"cancel: {model_text(known, self.model)} was there")
        said = queue.cancel(known.message_id)
        wanted = "in flight" if self.model.is_held(known) else "removed"
        ensure(said == wanted, f"cancel: {model_text(known, self.model)} was {said}")
        if known.cancelled:
            return
        self.model.count("cancelled")
        known.cancelled = self.model.is_held(known)
        known.state = LEASED if known.cancelled else GONE

    def _settle_one(self, rng: random.Random, verb: str, units: int = 0, error: str = "") -> None:
        if not self.held:
            return
        delivery = rng.choice(self.held) if rng.random() < 0.5 else self.held[-1]
        known = self.model.messages[delivery.message_id]
        self.say(f"{verb}{f' {units}' if units else ''} {model_text(known, self.model)}")
        if verb != "extend":
            self.held.remove(delivery)
        call: dict[str, Callable[[], object]] = {
            "ack": delivery.ack, "nack": lambda: delivery.nack(delay=units * SECONDS, error=error),
            "reject": lambda: delivery.reject(error), "extend": lambda: delivery.extend(units * SECONDS),
        }  # fmt: skip
        said = "ok"
        try:
            call[verb]()
        except MessageCancelled:
            said = "cancelled"
        except LeaseLost:
            said = "lost"
        wanted = "lost" if not self._is_live(delivery, known) else "cancelled" if known.cancelled else "ok"
        ensure(said == wanted, f"settle: {verb} was {said}, not {wanted}: {model_text(known, self.model)}")
        if said == "ok" and verb == "extend":
            known.until = self.model.now + units
        elif said != "lost" and verb != "extend":
            self._settled(known, verb, units, error)

    def _settle_many(self, rng: random.Random, verb: str, units: int = 0, error: str = "") -> None:
        batch = self._some_held(rng)
        self.held = [each for each in self.held if all(each is not taken for taken in batch)]
        queue, given = self.who(rng), with_repeats(rng, batch)
        known = [self.model.messages[each.message_id] for each in batch]
        live = [self._is_live(each, one) and not one.cancelled for each, one in zip(batch, known, strict=True)]
        by_hand = 0 < len(given) <= MAX_ACKS_A_CALL and rng.random() < 0.3
        self.say(f"{verb}_many {len(given)}{' by hand' * by_hand}, {sum(live)} of {len(batch)} leases live"
                 f"{f', {units} later' if units else ''}")  # fmt: skip
        if by_hand:
            lost = self._by_hand(queue, given, verb, units, error)
        elif verb == "ack":
            lost = queue.ack_many(given)
        elif verb == "nack":
            lost = queue.nack_many(given, delay=units * SECONDS, error=error)
        elif verb == "uncounted":
            lost = queue.nack_many(given, delay=units * SECONDS, error=error, counted=False)
        else:
            lost = queue.reject_many(given, error)
        wanted = [each for each, good in zip(batch, live, strict=True) if not good]
        tokens = [[each.received.token for each in some] for some in (lost, wanted)]
        ensure(tokens[0] == tokens[1], f"settle: lost {lost}, not {wanted}")
        for delivery, one in zip(batch, known, strict=True):
            if self._is_live(delivery, one):
                self._settled(one, verb, units, error)

    def _by_hand(self, queue: Queue, given: list[Delivery], verb: str, units: int, error: str) -> list[Delivery]:
        """Call the function itself, with each lease as often as it is given. Return those that it says are lost."""
        kind, words = KINDS[verb], list[Argument]()
        for each in given:
            token = token_argument(each.received.token)
            words += [token] if kind == "a" else [token, units * UNIT, error, ""]
        places = {each.received.token.partition(":")[0] for each in given} - {DUE}
        streams = tuple(queue.state.keys.stream(int(place)) for place in places)
        call = settle_call(queue.state, kind, words, streams)
        _, letters = queue._client.run(retry_until(always(call), queue.state.until(), queue.state.clock))
        said: dict[str, set[str]] = {}
        for each, letter in zip(given, letters.decode(), strict=True):
            said.setdefault(each.received.token, set()).add(letter)
        ensure(all(len(told) == 1 for told in said.values()), f"settle: of one lease {said}")
        return [each for each in dict.fromkeys(given) if said[each.received.token] <= {"l", "c"}]

    def extend_many(self, rng: random.Random) -> None:
        """A batch, as a worker does."""
        batch, queue, units = self._some_held(rng), self.who(rng), rng.randint(1, 3)
        given = with_repeats(rng, batch)
        self.say(f"extend_many {len(given)}, {len(batch)} leases")
        results = queue._client.run(settle.extend(queue.state, [each.received for each in given], units * SECONDS))
        for delivery, how in zip(given, results, strict=True):
            known = self.model.messages[delivery.message_id]
            wanted = Settled.CANCELLED if known.cancelled else Settled.OK
            if not self._is_live(delivery, known):
                wanted = Settled.LOST
            ensure(how is wanted, f"settle: extend was {how}, not {wanted}: {model_text(known, self.model)}")
            if how is Settled.OK:
                known.until = self.model.now + units

    def _some_held(self, rng: random.Random) -> list[Delivery]:
        """Some deliveries, or all."""
        return rng.sample(self.held, min(rng.choice((1, 2, 3, 6, 12, 50, 1000)), len(self.held)))

    def _is_live(self, delivery: Delivery, known: Known) -> bool:
        return self.model.is_held(known) and known.holder is delivery

    def _settled(self, known: Known, verb: str, units: int, error: str) -> None:
        """What becomes of it; where the dead letters are full `check` sees that it waits for room."""
        model = self.model
        known.holder, known.plain = None, False
        if known.cancelled:
            known.state = GONE
        elif verb == "ack":
            known.state = GONE
            model.count("acked")
        else:
            known.error = error or known.error
            known.rejected = known.rejected or verb == "reject"
            if verb == "uncounted":
                known.life, known.total = known.life - 1, known.total - 1
            elif model.is_doomed(known):
                self._die(known)
                return
            known.state, known.until = (DELAYED if units else WAITING), model.now + units
            known.counts = True

    def _die(self, known: Known) -> None:
        """Straight to the dead letters if there must be room, else there or waiting for room: `check` sees which."""
        if self.model.has_room_among(self.model.terms.name_of(known.key)):
            self.bury(known)
        else:
            known.state = WAITING
