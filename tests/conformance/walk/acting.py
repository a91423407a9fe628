"""Steps on all that a filter selects: the purge of one tenant, and actions."""

from __future__ import annotations

import random
from collections.abc import Iterable

from shardq import Action, Where
from shardq.model.where import WhereState
from tests.conformance.walk.base import NAMES, Base, ensure
from tests.conformance.walk.model import DEAD, DELAYED, GONE, LEASED, WAITING, Known


class Acting(Base):
    """What operators do with the messages of one tenant."""

    def purge_of(self, rng: random.Random) -> None:
        """All of a shard key or parent goes, its dedup keys and dead letters included; what is in flight may stay."""
        model, name, cancels = self.model, rng.choice(NAMES), rng.random() < 0.4
        waiting = [each for each in model.waiting() if self._is_of(each.key, name)]
        over = [each for each in filter(model.is_over, model.having(LEASED)) if self._is_of(each.key, name)]
        sharers = {name, name.split(b"/")[0] or name}
        dead = [each for each in model.having(DEAD) if self._is_of(each.key, name) and each.buried_as in sharers]
        held = [each for each in model.having(LEASED) if model.is_held(each) and self._is_of(each.key, name)]
        live = [each for each in held if not each.cancelled]
        keys = [spelled for spelled in model.keyed if self._has_key(spelled, name)]
        self.say(f"purge {name!r}: {len(waiting)}, {len(dead)} dead, {len(live)} in flight{', cancelled' * cancels}")
        said = self.who(rng).purge(shard_key=name, in_flight=cancels)
        told = (said.waiting + said.delayed, said.dead, said.cancelled)
        wanted = (len(waiting), len(dead), len(live) if cancels else 0)
        ensure(told == wanted, f"purge of one: {said}, not {wanted}")
        if all(each.counts for each in held):
            left = 0 if cancels else len(live)
            ensure(said.left_in_flight == left, f"purge of one: {said}, and {left} are in flight")
        for each in (*waiting, *over, *dead):
            each.state = GONE
        for spelled in keys:
            del model.keyed[spelled]
        model.count("purged", len(waiting))
        model.count("dead_deleted", len(dead))
        if cancels:
            for each in live:
                each.cancelled = True
            model.count("cancelled", len(live))

    def cancel_where(self, rng: random.Random) -> None:
        """Those of one tenant that wait, are delayed, or in flight, or all."""
        states: tuple[WhereState | None, ...] = (None, "waiting", "delayed", "retrying", "in_flight")
        name, state = rng.choice(NAMES), rng.choice(states)
        chosen = [each for each in self._of_state(state) if self._is_of(each.key, name)]
        self.say(f"cancel {state or 'all'} of {name!r}: {len(chosen)}")
        self._done(self.who(rng).cancel(Where(tenant=name, state=state)), len(chosen))
        for each in chosen:
            each.cancelled = self.model.is_held(each)
            each.state = LEASED if each.cancelled else GONE
        self.model.count("cancelled", len(chosen))

    def retry_where(self, rng: random.Random) -> None:
        """Those of one tenant that wait for their next try, or all."""
        name = rng.choice((None, *NAMES))
        chosen = [each for each in self._of_state("retrying") if name is None or self._is_of(each.key, name)]
        self.say(f"retry {name!r} now: {len(chosen)}")
        self._done(self.who(rng).retry_now(Where(tenant=name, state="retrying")), len(chosen))
        for each in chosen:
            each.state = WAITING

    def redrive_where(self, rng: random.Random) -> None:
        """The dead letters of one tenant, or a few of all."""
        name, limit = rng.choice((None, *NAMES)), rng.choice((None, 1, 2))
        if self.model.terms.max_len:
            return
        letters = [each for each in self.who(rng).dead(1000) if self._is_letter_of(each.message_id, name)][:limit]
        self.say(f"redrive {len(letters)} of {name!r}")
        self._done(self.who(rng).redrive(Where(tenant=name, state="dead"), limit=limit), len(letters))
        for letter in letters:
            each = self.model.messages[letter.message_id]
            each.state, each.life, each.stale, each.rejected, each.plain = WAITING, 0, False, False, False
            each.error, each.reason = letter.last_error, ""
            each.counts, each.has_unique_key = True, False
        self.model.count("redriven", len(letters))

    def delete_where(self, rng: random.Random) -> None:
        """The same for good."""
        name, limit = rng.choice((None, *NAMES)), rng.choice((None, 1, 2))
        letters = [each for each in self.who(rng).dead(1000) if self._is_letter_of(each.message_id, name)][:limit]
        self.say(f"delete {len(letters)} dead letters of {name!r}")
        self._done(self.who(rng).delete_dead(Where(tenant=name, state="dead"), limit=limit), len(letters))
        for letter in letters:
            self.model.messages[letter.message_id].state = GONE
        self.model.count("dead_deleted", len(letters))

    def _done(self, action: Action, count: int) -> None:
        said = action.wait()
        ensure((said.state, said.done, said.passed) == ("done", count, 0), f"action: {said}, not {count}")

    def _of_state(self, state: WhereState | None) -> Iterable[Known]:
        """Those that a filter means by a state."""
        model = self.model
        for each in model.having(WAITING, DELAYED, LEASED):
            if model.is_over(each) or (model.is_held(each) and each.cancelled):
                continue
            is_delayed = each.state == DELAYED and each.until > model.now
            is_retrying = is_delayed and each.life > 0 and not each.rejected
            now = "in_flight" if model.is_held(each) else "delayed" if is_delayed else "waiting"
            if state is None or now == state or (state == "retrying" and is_retrying):
                yield each

    def _is_letter_of(self, message_id: str, name: bytes | None) -> bool:
        return name is None or self._is_of(self.model.messages[message_id].key, name)

    def _is_of(self, key: bytes, name: bytes) -> bool:
        """Whether a shard key is meant by a name."""
        return key == name or self.model.terms.name_of(key) == name

    def _has_key(self, spelled: str, name: bytes) -> bool:
        """Whether a dedup key is of this name: it begins with the shard key, or Redis says who wrote it."""
        if self.model.terms.key_scope == "shard_key":
            size, _, rest = spelled.partition(":")
            key = rest.encode(errors="surrogateescape")[: int(size)]
        else:
            text = self.ledger.hashes["dedup"].get(b"k:" + spelled.encode(errors="surrogateescape"))
            if text is None:
                return False
            key = text.split(b"|", 2)[2]
        return self._is_of(key, name)
