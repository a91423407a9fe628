"""Steps that write."""

from __future__ import annotations

import random
from collections.abc import Sequence

from shardq import Message, PartlyWritten, Queue, QueueFull, ShardqError
from tests.conformance.walk.base import KEYS, QUIET, SECONDS, Base, _text, ensure, payload_of
from tests.conformance.walk.model import ALIVE, DELAYED, WAITING, Known

SIZES = (1, 2, 3, 8, 8, 20, 60)


class Writing(Base):
    """write and write_many: with delays, deadlines and headers, up to the bounds."""

    def write(self, rng: random.Random) -> None:
        """One message."""
        self._store(rng, 1, rng.choice((0, 0, 0, 1, 2)))

    def whisper(self, rng: random.Random) -> None:
        """One message of somebody who is quiet, whatever the others do."""
        self._store(rng, 1, 0, key=rng.choice(QUIET))

    def write_many(self, rng: random.Random) -> None:
        """A batch of several shard keys."""
        self._store(rng, rng.choice(SIZES), None)

    def flood(self, rng: random.Random) -> None:
        """Many of one shard key, now and then as many as a call may hold."""
        most = 40 if self.model.terms.cap else 1000  # what a cap holds back leaves by so few at a time
        self._store(rng, min(most, rng.choice((20, 40, 80, rng.choice((80, 200, 1000))))), 0, key=rng.choice(KEYS))

    def write_stale(self, rng: random.Random) -> None:
        """Its own deadline is over before anybody can read it."""
        key, queue = rng.choice(KEYS), self.who(rng)
        if self._full(key, 0):
            return
        self.say(f"write_stale {key!r}")
        message_id = queue.write(payload_of(self.numbers), shard_key=key, deadline=0.001)
        written = int(message_id.partition("-")[0])
        while self.look().now <= written + 1:
            pass
        self._add(message_id, key, 0, {}).stale = True

    def _full(self, key: bytes, delay: int) -> bool:
        """Whether another message of this shard key must be refused."""
        return bool(self._refused([(key, delay)]))

    def _store(self, rng: random.Random, size: int, delay: int | None, key: bytes | None = None) -> None:
        keys = rng.sample(KEYS, rng.randint(1, len(KEYS)))
        batch = []
        for _ in range(size):
            after = rng.choice((0, 0, 0, 0, 1, 2)) if delay is None else delay
            headers = {"n": str(self.numbers)} if rng.random() < 0.2 else {}
            batch.append((key or rng.choice(keys), after, headers, rng.random() < 0.1))
        queue, refused = self.who(rng), self._refused([(key, after) for key, after, _, _ in batch])
        messages = [
            Message(payload_of(self.numbers + at), key, delay=after * SECONDS if after else None,
                    headers=headers or None, deadline=1000 * SECONDS if late else None)
            for at, (key, after, headers, late) in enumerate(batch)
        ]  # fmt: skip
        self.say(f"write_many {_summed(batch)}{f', {len(refused)} refused' if refused else ''}")
        first = self.numbers
        for at, result in enumerate(self._results(queue, messages)):
            each, after, headers, _ = batch[at]
            ensure(
                isinstance(result, QueueFull) == (at in refused),
                f"full: {each!r}, {at} of {len(batch)}, is {result!r}; {refused}",
            )
            self.numbers = first + at
            if isinstance(result, str):
                self._add(result, each, after, headers)
        self.numbers = first + size

    def _results(self, queue: Queue, messages: list[Message]) -> Sequence[str | ShardqError]:
        if len(messages) == 1:
            (each,) = messages
            try:
                return [queue.write(each.payload, shard_key=each.shard_key, delay=each.delay, deadline=each.deadline,
                                    headers=each.headers)]  # fmt: skip
            except QueueFull as error:
                return [error]
        try:
            return queue.write_many(messages)
        except PartlyWritten as error:
            return error.results

    def _refused(self, batch: list[tuple[bytes, int]]) -> set[int]:
        terms, refused, waiting = self.model.terms, self.beyond_length([key for key, _ in batch]), self.accounts()
        bound = terms.max_backlog
        for at, (key, _) in enumerate(batch):
            name = self.model.terms.name_of(key)
            if not bound:
                continue
            if waiting[name] >= bound:
                refused.add(at)
            else:
                waiting[name] += 1
        return refused

    def _add(self, message_id: str, key: bytes, delay: int, headers: dict[str, str]) -> Known:
        model = self.model
        ensure(message_id not in model.messages, f"twice: the id {message_id} was given before")
        name = model.terms.name_of(key)
        alone = not any(model.terms.name_of(each.key) == name for each in model.having(*ALIVE))
        known = Known(self.numbers, message_id, key, model.terms.fair, headers, regime=model.regime)
        if delay:
            known.state, known.until, known.plain, known.counts = DELAYED, model.now + delay, False, True
        elif (
            alone
            and model.terms.window == 1
            and all(each.counts and each.regime == model.regime for each in model.having(WAITING))
        ):  # what was written under other rules may fill the streams
            known.quiet_since = model.served
        model.add(known)
        self.numbers += 1
        model.count("written")
        return known


def _summed(batch: list[tuple[bytes, int, dict[str, str], bool]]) -> str:
    """What a log says of a batch."""
    parts = [f"{_text(key)!r}{f' in {after}' if after else ''}" for key, after, _, _ in batch]
    return ", ".join(f"{parts.count(part)} x {part}" for part in dict.fromkeys(parts))
