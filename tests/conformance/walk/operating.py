"""Steps that operate the queue: purge, redrive, resize, assign, weigh, configure, and time that passes."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from typing import Any

from shardq import ConfigError, DeadLetter, Limits, PartlyDone, Queue, QueueFull
from shardq.sharding import key_bytes
from tests.conformance.walk.audit import UNIT
from tests.conformance.walk.base import KEYS, NAMES, SECONDS, STREAMS, Base, ensure, with_repeats
from tests.conformance.walk.elapsing import elapse
from tests.conformance.walk.model import DEAD, EVER, GONE, LEASED, WAITING, Own


def _redriven(queue: Queue, letters: Sequence[DeadLetter]) -> tuple[int, str]:
    """How many were moved, and what was told of others."""
    try:
        return queue.redrive(letters), ""
    except PartlyDone as partly:
        return partly.done, str(partly)
    except QueueFull as full:
        return 0, str(full)


class Operating(Base):
    """What operators and time do."""

    def purge(self, rng: random.Random) -> None:
        """Everything that waits or is delayed goes; what is in flight stays."""
        waiting, over = self.model.waiting(), [*filter(self.model.is_over, self.model.having(LEASED))]
        self.say(f"purge {len(waiting)}")
        said = self.who(rng).purge()
        ensure(said == len(waiting), f"purge: {said} of {len(waiting)}")
        for each in (*waiting, *over):
            each.state = GONE
        self.model.count("purged", len(waiting))

    def redrive(self, rng: random.Random) -> None:
        """Some dead letters, or all, as far as there is room; those that are gone already change nothing."""
        queue = self.who(rng)
        chosen = queue.dead(rng.choice((1, 3, 1000)))
        left = self.beyond_length([self.model.messages[letter.message_id].key for letter in chosen])
        letters = [letter for at, letter in enumerate(chosen) if at not in left]
        self.say(f"redrive {len(chosen)}{f', {len(left)} left' if left else ''}")
        said, told = _redriven(queue, with_repeats(rng, chosen))
        ensure(said == len(letters), f"redrive: {said} of {len(chosen)}, {len(left)} have no room")
        ensure((f" {len(left)} dead letters were left" in told) == bool(left), f"redrive: {len(left)} left, {told}")
        for letter in letters:
            each = self.model.messages[letter.message_id]
            each.state, each.life, each.stale, each.rejected, each.plain = WAITING, 0, False, False, False
            each.error, each.reason = letter.last_error, ""
            each.counts, each.has_unique_key = True, False
        self.model.count("redriven", len(letters))
        if rng.random() < 0.3:
            ensure(queue.redrive(letters) == 0, "redrive: letters that were gone")

    def delete_dead(self, rng: random.Random) -> None:
        """Some dead letters, by their ids, with ids of others among them; or the oldest letters of a shard key."""
        dead, queue = [*self.model.having(DEAD)], self.who(rng)
        if rng.random() < 0.5:
            others = rng.sample(sorted(self.model.messages), min(3, len(self.model.messages)))
            ids = {*others, *(each.message_id for each in rng.sample(dead, min(3, len(dead))))}
            gone, said = (
                [each for each in dead if each.message_id in ids],
                queue.delete_dead(ids=with_repeats(rng, sorted(ids))),
            )
        else:
            key = rng.choice(KEYS)
            letters = [each for each in queue.dead(1000) if self.model.messages[each.message_id].key == key][:2]
            gone = [self.model.messages[each.message_id] for each in letters]
            said = queue.delete_dead(with_repeats(rng, letters))
        self.say(f"delete {len(gone)} of {len(dead)} dead letters")
        ensure(said == len(gone), f"delete_dead: {said} of {len(gone)}")
        for each in gone:
            each.state = GONE
        self.model.count("dead_deleted", len(gone))

    def resize(self, rng: random.Random) -> None:
        """Any number; refused when a stored shard would lose a stream."""
        wanted = rng.choice(STREAMS)
        reach = max((stream + 1 for streams in self.model.terms.shards.values() for stream in streams), default=0)
        self.say(f"resize {self.model.terms.streams} to {wanted}, shards reach {reach}")
        try:
            said = self.who(rng).resize(wanted)[1]
        except ConfigError:
            ensure(wanted < reach, f"resize: to {wanted} was refused, shards reach {reach}")
            return
        ensure(said == wanted and wanted >= reach, f"resize: to {wanted} was {said}, shards reach {reach}")
        self.model.terms.streams = wanted
        self.rules_changed()

    def assign(self, rng: random.Random) -> None:
        """Hands for some shard keys, all or none."""
        names, queue, shards = rng.sample(NAMES, rng.randint(1, 4)), self.who(rng), self.model.terms.shards
        self.say(f"assign {names}")
        try:
            made = queue.assign(names)
        except ConfigError as error:
            self.log[-1] += f": {error}"
            return
        said = {key_bytes(name): tuple(streams) for name, streams in made.items()}
        ensure(said.keys() == shards.keys() | {*names}, f"assign: {said}")
        ensure(
            all(said[name] == streams for name, streams in shards.items()), f"assign: shards moved: {said}, {shards}"
        )
        self.model.terms.shards = said
        self.rules_changed()

    def unassign(self, rng: random.Random) -> None:
        """Some shards, or all."""
        shards = self.model.terms.shards
        names = None if rng.random() < 0.5 or not shards else rng.sample(sorted(shards), 1)
        self.say(f"unassign {names}")
        self.who(rng).unassign(names)
        self.model.terms.shards = {
            key: streams for key, streams in shards.items() if names is not None and key not in names
        }
        self.rules_changed()

    def weigh(self, rng: random.Random) -> None:
        """Shard keys, parents and children."""
        units = rng.choice((None, None, 1, 2))
        choices = (1, 2, 5) if units is None else (2, 5)
        changes = {name: rng.choice(choices) for name in rng.sample(NAMES, rng.randint(1, 3))}
        self.say(f"weigh {changes} for {units}")
        self.who(rng).set_weights(changes, seconds=units and units * SECONDS)  # type: ignore[arg-type]
        weights = {**self.model.terms.weights, **changes}
        for name in changes:
            self.model.terms.weights_until.pop(name, None)
            if units is not None:
                self.model.terms.weights_until[name] = self.model.now + units
        self.model.terms.weights = {name: weight for name, weight in weights.items() if weight != 1}
        self.rules_changed()

    def limit(self, rng: random.Random) -> None:
        """A cap and a rate of some names, or none: refused for children, and where nothing counts."""
        changes = {
            name: (rng.choice((None, None, 0, 1, 3)), rng.choice((None, None, 1, 4)))
            for name in rng.sample(NAMES, rng.randint(1, 3))
        }
        lifted = {name for name, (cap, burst) in changes.items() if cap is None and burst is None}
        units = None if lifted else rng.choice((None, 1, 2))
        self.say(f"limit {changes} for {units}")
        made = {
            name: Limits(cap, None if burst is None else 1 / SECONDS, burst) for name, (cap, burst) in changes.items()
        }

        def change(own: Own, name: bytes) -> None:
            cap, burst = changes[name]
            if burst is None:
                self.model.terms.forget_bucket(name)
            own.cap, own.burst, own.until = cap, burst, EVER if units is None else self.model.now + units

        seconds = units and units * SECONDS
        self._limit([*changes], lambda: self.who(rng).set_limits(made, seconds=seconds), change, lifted)  # type: ignore[arg-type]

    def pause(self, rng: random.Random) -> None:
        """A name, or the whole queue."""
        units = rng.choice((None, 1, 2))
        end = EVER if units is None else self.model.now + units
        self._pause(
            rng, end, lambda name: self.who(rng).pause(name, seconds=None if units is None else units * SECONDS)
        )

    def resume(self, rng: random.Random) -> None:
        """Whether it is paused or not."""
        self._pause(rng, 0, lambda name: self.who(rng).resume(name))

    def _pause(self, rng: random.Random, end: int, call: Callable[[bytes | None], None]) -> None:
        name = None if rng.random() < 0.2 else rng.choice(NAMES)
        self.say(f"{'pause' if end else 'resume'} {name!r} until {end}")
        if name is None:
            call(None)
            self.model.terms.paused_until, self.model.is_stopped = end, True
            self.rules_changed()
            return
        lifted = () if end else (name,)
        self._limit([name], lambda: call(name), lambda own, _: setattr(own, "paused_until", end), lifted)

    def _limit(
        self,
        names: list[bytes],
        call: Callable[[], None],
        change: Callable[[Own, bytes], None],
        lifted: Collection[bytes] = (),
    ) -> None:
        """Change limits of these names. Children can have none, but those that are only *lifted* may be theirs."""
        terms = self.model.terms
        allowed = terms.fair and all(terms.name_of(name) == name for name in names if name not in lifted)
        try:
            call()
        except ConfigError:
            ensure(not allowed, f"limit: {names} were refused")
            self.log[-1] += ", refused"
            return
        ensure(allowed, f"limit: {names} were not refused")
        for name in names:
            own = terms.own.setdefault(name, Own())
            if own.paused_until <= self.model.now:
                own.paused_until = 0
            change(own, name)
            if not own.is_any:
                del terms.own[name]
        terms.change_bursts(names, self.model.now)
        self.rules_changed()

    def switch_total(self, rng: random.Random) -> None:
        """A cap and a rate of the whole queue."""
        self._configure(rng, total_in_flight=rng.choice((0, 0, 3, 10)), total_burst=rng.choice((0, 0, 2, 30)))
        self.model.is_stopped = True

    def switch_rate(self, rng: random.Random) -> None:
        """A rate of each shard key."""
        self._configure(rng, rate_burst=rng.choice((0, 1, 4)))

    def switch_window(self, rng: random.Random) -> None:
        """On, off, wider or narrower."""
        self._configure(rng, window=rng.choice((0, 1, 1, 2, 5)))

    def switch_cap(self, rng: random.Random) -> None:
        """On, off, higher or lower."""
        self._configure(rng, max_in_flight=rng.choice((0, 0, 2, 6)))

    def switch_backlog(self, rng: random.Random) -> None:
        """The bound on what a shard key may have waiting."""
        if not self.model.terms.max_len:
            self._configure(rng, max_backlog=rng.choice((0, 5, 50)))

    def switch_bounds(self, rng: random.Random) -> None:
        """How many messages there may be, and how many keys are remembered."""
        self._configure(rng, max_dedup=rng.choice((5, 1_000_000)))
        if not self.model.terms.max_backlog:
            self._configure(rng, max_len=rng.choice((0, 10, 40)))

    def switch_parents(self, rng: random.Random) -> None:
        """Refused while anything waits that counts."""
        self._configure(rng, parents=1 - self.model.terms.parents)

    def switch_deaths(self, rng: random.Random) -> None:
        """More or fewer deliveries, more or fewer dead letters."""
        self._configure(
            rng, max_deliveries=rng.choice((2, 3, 5)), max_dead=self.few_dead(rng), drop_dead=rng.choice((0, 1))
        )

    def switch_journal(self, rng: random.Random) -> None:
        """On and off: what it held ends with it."""
        self._configure(rng, journal=0 if self.model.terms.journal else 100_000)

    def switch_memory(self, rng: random.Random) -> None:
        """For how long dedup keys are remembered from now on."""
        self._configure(rng, dedup_window=rng.randint(1, 4))

    def few_dead(self, rng: random.Random) -> int:
        """A small bound on dead letters."""
        return rng.choice((1, 3, 1000))

    def _configure(self, rng: random.Random, **changes: int) -> None:
        terms, queue = self.model.terms, self.who(rng)
        fields = {"max_in_flight": "cap"}
        old = {name: getattr(terms, fields.get(name, name)) for name in changes}
        self.say(f"configure {old} to {changes}")
        busy = bool(
            self.ledger.new or self.ledger.held or self.ledger.returned or self.ledger.delayed or self.ledger.leased
        )
        settings: dict[str, Any] = dict(changes)
        for name, rate, burst in (("rate_burst", "rate", "burst"), ("total_burst", "total_rate", "total_burst")):
            if name in changes:
                settings.pop(name)
                settings |= {rate: 1 / SECONDS if changes[name] else 0, burst: changes[name]}
        if "dedup_window" in changes:
            settings["dedup_window"] = changes["dedup_window"] * SECONDS
        try:
            queue.configure(**settings)
        except ConfigError:
            ensure("parents" in changes and busy, f"configure: {changes} was refused")
            self.log[-1] += ", refused"
            return
        ensure("parents" not in changes or not busy, "configure: parents changed while there were messages")
        for name, value in changes.items():
            setattr(terms, fields.get(name, name), value)
        terms.note_changes()
        if "rate_burst" in changes:
            terms.change_bursts([*terms.full_at], self.model.now)
        if "total_burst" in changes:
            terms.change_bursts([b""], self.model.now)
        self.rules_changed()
        if "journal" in changes:
            self.tell_all()  # who does not know that there is a journal tells it less
            self.follow_journal()

    def forget_scripts(self, rng: random.Random) -> None:
        """The server knows neither the library nor its scripts any more."""
        self.say("forget_scripts")
        self.world.raw.script_flush()
        self.world.raw.function_flush()

    def pass_time(self, rng: random.Random) -> None:
        """Leases end, delayed messages come due, dedup keys are forgotten: all is moved back, which is the same."""
        for queue in self.queues:
            queue.state.shrink_at = 0.0  # clients look now and then whether a stream can go
        self.elapse(rng.choice((1, 1, 2, 3)))

    def elapse(self, units: int) -> None:
        """So many units pass."""
        self.say(f"{units} pass")
        elapse(self.world.node(self.keys.meta), self.keys, self.look(), units * UNIT)
        self.model.now += units
        self.model.terms.end_limits(self.model.now)
