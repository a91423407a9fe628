"""Steps that write messages with dedup keys and unique keys, one in a call or several."""

from __future__ import annotations

import random
from dataclasses import dataclass

from shardq import Message, PartlyWritten, QueueFull, UniqueConflict
from shardq.model.message import OnConflict
from shardq.model.written import Written
from tests.conformance.walk.base import KEYS, SECONDS, ensure, payload_of
from tests.conformance.walk.model import ALIVE, DELAYED, WAITING, Known
from tests.conformance.walk.writing import Writing

MODES: tuple[OnConflict, ...] = ("existing", "raise", "replace", "replace")


@dataclass(frozen=True)
class Wanted:
    """A message that a call of several has: '' is no key."""

    key: bytes
    dedup: str
    unique: str
    mode: OnConflict
    after: int | None

    def message(self, payload: object) -> Message:
        """As it is written."""
        return Message(
            payload, self.key, dedup_key=self.dedup or None, unique_key=self.unique or None,
            on_conflict=self.mode if self.unique else "existing",
            delay=None if self.after is None else float(self.after * SECONDS),
        )  # fmt: skip


class Keyed(Writing):
    """write and write_many of messages that may stand for others."""

    def write_once(self, rng: random.Random) -> None:
        """With one of few dedup keys, which may have been written before, by either client."""
        key, dedup, queue = rng.choice(KEYS), rng.choice("xyz"), self.who(rng)
        spelled = self.model.spelled(key, dedup)
        before = self.model.remembered(spelled)
        if before is None and self._full(key, 0):
            return
        self.say(f"write_once {key!r}, dedup key {dedup}")
        try:
            message_id = queue.write(payload_of(self.numbers), shard_key=key, dedup_key=dedup)
        except QueueFull as error:
            self._no_room_for_keys(key, error)
            return
        ensure(message_id.is_new == (before is None), f"twice: {dedup} is said to be new, or not, against {before}")
        if before is not None:
            ensure(message_id == before, f"twice: {dedup} is {before}, and now {message_id}")
            return
        self._add(message_id, key, 0, {})
        self.model.keyed[spelled] = (message_id, self.model.now + self.model.terms.dedup_window)

    def write_unique(self, rng: random.Random) -> None:
        """With one of few unique keys, which another message may have: it stays, is replaced, or is in the way."""
        queue, model = self.who(rng), self.model
        key, unique = self._some_unique(rng)
        mode = rng.choice(MODES)
        after = rng.choice((None, None, 0, 1, 2))
        spelled = model.spelled(key, unique)
        holder = model.holder(spelled)
        others = [each for each in model.waiting() if each.unique == spelled]
        doomed = [each for each in others if not model.stands(each)]
        if model.regime and any(map(model.may_have_given_up, others)):
            return  # the number of deliveries was changed meanwhile
        is_waiting = holder is not None and not model.is_held(holder)
        is_new = holder is None or (mode == "replace" and not is_waiting)
        refused = is_new and self._full(key, 0)
        self.say(f"write_unique {key!r}, {unique}, {mode}{'' if after is None else f' in {after}'}"
                 f"{f', which {holder.message_id} has' if holder else ''}{', refused' * refused}")  # fmt: skip
        try:
            message_id = queue.write(payload_of(self.numbers), shard_key=key, unique_key=unique, on_conflict=mode,
                                     delay=None if after is None else float(after * SECONDS))  # fmt: skip
        except UniqueConflict as conflict:
            ensure(mode == "raise" and holder is not None, f"unique: {unique} is said to be taken")
            ensure(holder is None or conflict.message_id == holder.message_id, f"unique: {conflict.message_id} has it")
            return
        except QueueFull as error:
            if error.bound == "max_dedup":
                self._no_room_for_keys(key, error)
            else:
                ensure(refused, f"full: {key!r} is refused, {unique}")
            return
        ensure(not refused, f"full: {key!r} is not refused, {unique}")
        ensure(message_id.is_new == is_new, f"unique: {unique} is said to be new, or not, and {holder} has it")
        if is_new:
            for each in (*doomed, *([holder] if holder else ())):
                each.unique = ""
            known = self._add(message_id, key, after or 0, {})
            known.state, known.until = (DELAYED if after else WAITING), model.now + (after or 0)
            known.plain, known.unique, known.has_unique_key, known.counts = False, spelled, True, True
            known.quiet_since = None
            return
        assert holder is not None
        ensure(mode != "raise" and message_id == holder.message_id, f"unique: {message_id} instead of its holder")
        if mode == "replace":
            self._replaced(holder, key, after)

    def _some_unique(self, rng: random.Random) -> tuple[bytes, str]:
        """A shard key and a unique key of it; often those of a message that is there."""
        there = [each for each in self.model.living() if each.unique]
        if there and rng.random() < 0.5:
            each = rng.choice(there)
            return each.key, each.unique[-1]
        return rng.choice(KEYS), rng.choice("pqr")

    def write_keyed(self, rng: random.Random) -> None:
        """Several in one call, with few keys among them: as if they were written one after the other."""
        terms, queue = self.model.terms, self.who(rng)
        if terms.max_len or terms.max_backlog or terms.max_dedup < 1000:
            return  # which of them have a place in a bound is another matter
        keys = rng.sample(KEYS, 2)
        batch = [
            Wanted(
                rng.choice(keys), rng.choice(("", "", *"xyz")), rng.choice(("", "p", "p", "q")), rng.choice(MODES),
                rng.choice((None, None, 0, 1)),
            )
            for _ in range(rng.choice((2, 3, 5, 12)))
        ]  # fmt: skip
        spelled = {self.model.spelled(each.key, each.unique) for each in batch if each.unique}
        others = [each for each in self.model.waiting() if each.unique in spelled]
        if self.model.regime and any(map(self.model.may_have_given_up, others)):
            return  # the number of deliveries was changed meanwhile
        self.say(f"write_keyed {', '.join(map(_shown, batch))}")
        first, results = self.numbers, list[object]()
        try:
            results += queue.write_many([each.message(payload_of(first + at)) for at, each in enumerate(batch)])
        except PartlyWritten as error:
            results += error.results
        for at, (each, result) in enumerate(zip(batch, results, strict=True)):
            self.numbers = first + at
            self._wrote(each, result)
        self.numbers = first + len(batch)

    def _wrote(self, wanted: Wanted, result: object) -> None:
        """Hold one result against the model, and note what was written."""
        model = self.model
        dedup, unique = (text and model.spelled(wanted.key, text) for text in (wanted.dedup, wanted.unique))
        before = model.remembered(dedup) if dedup else None
        if before is not None:
            ensure(result == before and not _is_new(result), f"twice: {_shown(wanted)} is {before}, and now {result}")
            return
        holder = model.holder(unique) if unique else None
        is_waiting = holder is not None and not model.is_held(holder)
        if holder is not None and wanted.mode == "raise":
            said = result.message_id if isinstance(result, UniqueConflict) else result
            ensure(isinstance(result, UniqueConflict) and said == holder.message_id,
                   f"unique: {_shown(wanted)} is {said}, not in the way of {holder.message_id}")  # fmt: skip
            return
        if holder is not None and (wanted.mode == "existing" or is_waiting):
            ensure(result == holder.message_id and not _is_new(result),
                   f"unique: {_shown(wanted)} is {result}, not {holder.message_id}")  # fmt: skip
            if wanted.mode == "replace":
                self._replaced(holder, wanted.key, wanted.after)
            elif dedup:
                model.keyed[dedup] = (holder.message_id, model.now + model.terms.dedup_window)
            return
        ensure(_is_new(result), f"unique: {_shown(wanted)} is {result}, and should be new")
        self._add_keyed(str(result), wanted, unique)
        if dedup:
            model.keyed[dedup] = (str(result), model.now + model.terms.dedup_window)

    def _add_keyed(self, message_id: str, wanted: Wanted, unique: str) -> None:
        for each in self.model.having(*ALIVE):
            if unique and each.unique == unique:
                each.unique = ""
        known = self._add(message_id, wanted.key, wanted.after or 0, {})
        known.quiet_since = None
        if unique:
            known.plain, known.unique, known.has_unique_key, known.counts = False, unique, True, True

    def _replaced(self, holder: Known, key: bytes, after: int | None) -> None:
        if self.model.has_ended(holder):
            self.take_back(holder)
        if after is not None:
            holder.state, holder.until = (DELAYED if after else WAITING), self.model.now + after
        holder.number, holder.key, holder.headers, holder.plain, holder.quiet_since = self.numbers, key, {}, False, None
        self.numbers += 1

    def _no_room_for_keys(self, key: bytes, error: QueueFull) -> None:
        """Who was refused a key has its share of what is free, when what has ended is forgotten."""
        name, found, bound = self.model.terms.name_of(key), self.look(), self.model.terms.max_dedup
        used = int(found.hashes["meta"].get(b"D:" + name, b"0"))
        total = len(found.sorted["dedup_index"]) - 1
        ensure(not self.model.may_use(used, total, bound), f"full: {key!r} has {used} of {total} keys, {bound} may be")
        said = (error.bound, error.limit, error.used, error.others)
        ensure(said == ("max_dedup", bound, used, total - used), f"full: {said}, {used} of {total}")


def _is_new(result: object) -> bool:
    return isinstance(result, Written) and result.is_new


def _shown(wanted: Wanted) -> str:
    """What a log says of it."""
    keys = f"{wanted.dedup}{f' {wanted.unique} {wanted.mode}' if wanted.unique else ''}"
    return f"{wanted.key!r} ({keys}){'' if wanted.after is None else f' in {wanted.after}'}"
