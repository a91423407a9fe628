"""Steps that read, and what every read must keep: who, how many, in which order, how soon."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

from shardq import Delivery, Queue
from shardq.ops.read.give_back import recover
from shardq.ops.read.waiting import Outstanding
from tests.conformance.walk.audit import UNIT, model_text
from tests.conformance.walk.base import SECONDS, Base, ensure, payload_of
from tests.conformance.walk.ledger import Ledger
from tests.conformance.walk.model import DELAYED, EVER, LEASED, WAITING, Known
from tests.conformance.walk.terms import flying

COUNTS = (1, 1, 1, 2, 5, 12, 32, 40, 100, 1000)


class Reading(Base):
    """read, read_many, prefer_stream, and reads whose reply is lost."""

    def read(self, rng: random.Random) -> None:
        """One or many."""
        count, lease = rng.choice(COUNTS), rng.randint(1, 3)
        prefer = rng.randrange(self.model.terms.streams) if rng.random() < 0.25 else None
        self.read_up_to(self.who(rng), count, lease, prefer)

    def read_singly(self, rng: random.Random) -> None:
        """Several, one at a time."""
        for _ in range(rng.choice((2, 5, 12, 30))):
            self.read_up_to(self.who(rng), 1, rng.randint(1, 3), None)

    def ask(self, rng: random.Random) -> None:
        """Where some messages are that are there, or were."""
        asked = rng.sample([*self.model.messages.values()], min(10, len(self.model.messages)))
        self.say(f"ask {len(asked)}")
        self.ask_for(self.who(rng), asked)

    def lose_a_read(self, rng: random.Random) -> None:
        """What it was granted is given back, by a client that has not seen it, as if it had never been delivered."""
        count, lease, queue = rng.choice(COUNTS), rng.randint(1, 3), self.who(rng)
        lost = self.read_up_to(queue, count, lease, None)
        if not lost:
            return
        self.say(f"... and the reply is lost: {len(lost)} come back")
        holders = dict.fromkeys(each.received.token.split(":", 4)[3] for each in lost)
        for holder in holders:  # one for each call that the read made
            asked = Outstanding(holder=holder, since=0, visibility=lease * UNIT)
            queue._client.run(recover(queue.state, asked, queue.state.until()))
        self.held = [each for each in self.held if all(each is not gone for gone in lost)]
        for delivery in lost:
            known = self.model.messages[delivery.message_id]
            known.life, known.total, known.state, known.holder = known.life - 1, known.total - 1, WAITING, None
            known.plain = False
            known.counts = True

    def read_up_to(self, queue: Queue, count: int, lease: int, prefer: int | None) -> list[Delivery]:
        """Read, and hold what came against the model."""
        before, model = self.ledger, self.model
        expected = {each.message_id: each for each in model.deliverable()}
        least = self._least(count)
        self._nobody_waited_too_long()
        self.say(f"read {count}{f', prefer {prefer}' if prefer is not None else ''}")
        found = queue.read_many(count, visibility_timeout=lease * SECONDS, prefer_stream=prefer)
        self.log[-1] += f": {len(found)} ({_shown(found)})"
        ensure(len({each.message_id for each in found}) == len(found), f"doubled: {found}")
        ensure(least <= len(found) <= count, f"few: {len(found)} of {count} read, {least} or more must come")
        after = self.look()
        self.catch_up(after)
        for delivery in found:
            known = expected.get(delivery.message_id)
            ensure(known is not None and known.state == WAITING, self._wrongly(delivery))
            assert known is not None
            self._hand_out(known, delivery, lease)
        self._keep_caps(found)
        self._keep_limits(found)
        self._keep_order(before, found)
        model.served, model.unsettled = model.served + len(found), False
        self.catch_up(after)
        return found

    def _wrongly(self, delivery: Delivery) -> str:
        known = self.model.messages.get(delivery.message_id)
        return f"delivered: {delivery} is {known and model_text(known, self.model)}"

    def _hand_out(self, known: Known, delivery: Delivery, lease: int) -> None:
        said = (delivery.payload, delivery.count, delivery.last_error, dict(delivery.headers), _raw(delivery.shard_key))
        wanted = (payload_of(known.number), known.total + 1, known.error, known.headers, known.key)
        ensure(said == wanted, f"delivery: {said}, not {wanted}")
        self.model.count("delivered")
        self.model.count("redelivered", int(known.life > 0))
        known.life, known.total, known.quiet_since = known.life + 1, known.total + 1, None
        known.state, known.until, known.holder = LEASED, self.model.now + lease, delivery
        self.held.append(delivery)

    def _least(self, count: int) -> int:
        """How many must come at least: all that may be delivered, or where time has brought something, one."""
        ready, room = self.model.deliverable(), self._total_room()
        sure = min(room, self._allowed(ready))
        if any(each.until <= self.model.now for each in self.model.having(LEASED, DELAYED)) or self.model.unsettled:
            return min(1, sure)
        return min(count, sure)

    def _allowed(self, ready: list[Known]) -> int:
        """How many of these messages the limits of their shard keys let out."""
        terms, allowed, limited = self.model.terms, 0, Counter[bytes]()
        flights = flying(self.model)
        flights.subtract(terms.name_of(each.key) for each in self.model.having(LEASED)
                         if each.counts and each.until <= self.model.now)  # fmt: skip
        for each in ready:
            if each.counts and terms.is_limited(terms.name_of(each.key)):
                limited[terms.name_of(each.key)] += 1
            else:
                allowed += 1
        for name, waiting in limited.items():
            allowed += min(waiting, max(0, terms.allowance(name, flights[name], self.model.now)))
        return allowed

    def _total_room(self) -> int:
        """How many the limits of the whole queue let out."""
        terms, model = self.model.terms, self.model
        if terms.paused_until > model.now:
            return 0
        held = sum(1 for each in model.living() if model.is_held(each))
        room = terms.total_in_flight - held if terms.total_in_flight else EVER
        return max(0, min(room, terms.tokens(b"", model.now)))

    def _keep_limits(self, found: list[Delivery]) -> None:
        """Nothing of a name that is paused or has no token came, nor more than the whole queue may deliver."""
        terms, model = self.model.terms, self.model
        held = sum(1 for each in model.living() if model.is_held(each))
        ensure(not found or terms.paused_until <= model.now, "pause: a paused queue delivers")
        bound = terms.total_in_flight or EVER
        ensure(not found or held <= bound, f"cap: {held} are in flight, {bound} are allowed in all")
        came = Counter(terms.name_of(_raw(each.shard_key)) for each in found
                       if model.messages[each.message_id].counts)  # fmt: skip
        came[b""] = len(found)
        for name, own in terms.own.items():
            ensure(not came[name] or own.paused_until <= model.now, f"pause: {came[name]} of {name!r} came")
        for name, count in came.items():
            tokens = terms.most_tokens(name, model.now)
            ensure(count <= max(0, tokens), f"rate: {count} of {name!r} came, there were {tokens} tokens")
            terms.spend(name, model.now, count)

    def _keep_caps(self, found: list[Delivery]) -> None:
        """Nothing came of a shard key that has more in flight than its cap."""
        terms, flights = self.model.terms, flying(self.model)  # what came is in flight there already
        for name in {terms.name_of(_raw(each.shard_key)) for each in found
                     if self.model.messages[each.message_id].counts}:  # fmt: skip
            own = terms.own.get(name)
            cap = terms.cap_of(name) if own is None or own.cap is None else own.cap
            ensure(not cap or flights[name] <= cap, f"cap: {name!r} has {flights[name]} in flight, {cap} are allowed")

    # --- order

    def _keep_order(self, before: Ledger, found: list[Delivery]) -> None:
        self._in_order_of_each_stream(before, found)
        if self.model.terms.per_shard == 1 or self.model.terms.window == 1:
            self._in_order_of_each_key(found)

    def _in_order_of_each_stream(self, before: Ledger, found: list[Delivery]) -> None:
        """What lay in a stream, never delivered, comes in the order of writing; nothing of it is passed over."""
        new = {before.id_of(handle): stream for handle, stream in before.new.items()}
        came: dict[int, list[int]] = {}
        for each in found:
            if each.message_id in new:
                came.setdefault(new[each.message_id], []).append(self.model.messages[each.message_id].entry)
        for stream, numbers in came.items():
            ensure(all(a < b for a, b in pairwise(numbers)), f"order: stream {stream} gave {numbers}")
            left = [each.entry for each in self.model.having(WAITING)
                    if new.get(each.message_id) == stream and not self._may_stay(each)]  # fmt: skip
            ensure(not left or min(left) > max(numbers), f"order: stream {stream} gave {numbers}, and left {left}")

    def _may_stay(self, each: Known) -> bool:
        return each.counts and self.model.terms.is_limited(self._name(each))

    def _name(self, each: Known) -> bytes:
        return self.model.terms.name_of(each.key)

    def _in_order_of_each_key(self, found: list[Delivery]) -> None:
        """With a window of 1, or one stream, first deliveries come in the order of writing, held back or not."""
        came: dict[bytes, list[int]] = {}
        for each in found:
            known = self.model.messages[each.message_id]
            if known.plain and known.total == 1 and known.counts and known.regime == self.model.regime:
                came.setdefault(known.key, []).append(known.entry)
        for key, numbers in came.items():
            ensure(all(a < b for a, b in pairwise(numbers)), f"order: of {key!r} came {numbers}")
            left = [each.entry for each in self.model.having(WAITING)
                    if each.key == key and each.plain and each.total == 0 and each.counts and not each.stale
                    and each.regime == self.model.regime]  # fmt: skip
            ensure(not left or min(left) > max(numbers), f"order: of {key!r} came {numbers}, and {left} were left")

    # --- fairness

    def _nobody_waited_too_long(self) -> None:
        """Of a shard key that had nothing: three times ideal fair queueing at most, in messages."""
        model = self.model
        active = {model.terms.name_of(each.key) for each in model.having(WAITING) if each.counts}
        share = sum(model.terms.weights.get(name, 1) for name in active)
        waiting = Counter(model.terms.name_of(each.key) for each in model.having(WAITING))
        are_limited = model.terms.rate_burst or self._total_room() < EVER
        for each in model.having(WAITING):
            is_limited = are_limited or self._name(each) in model.terms.own
            if waiting[self._name(each)] > 1 or is_limited:
                each.quiet_since = None  # others of the same shard key came, or came back; or it may have to wait
            if each.quiet_since is not None and each.total == 0 and not each.stale:
                waited, each.bound = model.served - each.quiet_since, max(each.bound, 3 * (max(8, share) + 1))
                ensure(
                    waited <= each.bound,
                    f"unfair: {model_text(each, model)} waited for {waited} messages of {each.bound}",
                )


def _raw(key: str | bytes) -> bytes:
    return key.encode() if isinstance(key, str) else key


def _shown(found: list[Delivery]) -> str:
    return ", ".join(f"{number} x {key!r}" for key, number in Counter(each.shard_key for each in found).items())
