"""What all steps of a walk share: two clients of one queue, the model, and the count after each step."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from shardq import Delivery, Queue
from shardq.ops.queue.opening import reopen
from tests.conformance.replay import CANCELLING, IN_FLIGHT, Replay
from tests.conformance.replay import WAITING as TOLD_WAITING
from tests.conformance.replay import Known as Told
from tests.conformance.walk.audit import UNIT, model_text, problems
from tests.conformance.walk.elapsing import put_off
from tests.conformance.walk.ledger import Ledger, look, order
from tests.conformance.walk.model import ALIVE, DEAD, DELAYED, GONE, LEASED, WAITING, Known, Model, Terms
from tests.conformance.world import World

KEYS = (b"a", b"b", b"c/1", b"c/2", b"c/3", b"d/x/y", b"/e", b"\x00\xff", b"f f", b"g:1")
QUIET = (b"q1", b"q2", b"q3")
"""Shard keys that never have more than a message or two waiting."""

NAMES = (*KEYS, b"c", b"d")
STREAMS = (1, 2, 4, 8, 16, 40)
SECONDS = UNIT / 1000
"""in a unit"""

T = TypeVar("T")


class Broken(AssertionError):
    """The queue is not what the model says. `kind` is the first word: shrinking looks for the same kind."""

    @property
    def kind(self) -> str:
        """What sort of contradiction it is."""
        return str(self).partition(":")[0]


def ensure(condition: object, text: str) -> None:
    """Broken with *text* unless *condition*."""
    if not condition:
        raise Broken(text)


def payload_of(number: int) -> object:
    """What a message says: its number, and now and then so much behind it that its payload lies by itself."""
    return number if number % 6 else [number, "x" * 2000]


def with_repeats(rng: random.Random, items: Sequence[T]) -> list[T]:
    """*items*, now and then with some of them again behind."""
    return [*items, *(rng.choices(items, k=rng.randint(1, 3)) if items and rng.random() < 0.3 else ())]


class Base:
    """The state of a walk. All choices come from the random numbers that a step is given."""

    def __init__(self, world: World, queues: list[Queue], terms: Terms) -> None:
        self.world, self.queues = world, queues
        self.keys = queues[0].state.keys
        self.model = Model(terms)
        self.held: list[Delivery] = []
        self.log: list[str] = []
        self.letters: dict[str, str] = {}
        self.numbers = 0
        self.replay: Replay | None = None
        for queue in queues:
            queue.read_many(1)
        self.ledger = look(world.node(self.keys.meta), self.keys)
        self.follow_journal()

    def who(self, rng: random.Random) -> Queue:
        """One of the clients."""
        return rng.choice(self.queues)

    def say(self, text: str) -> None:
        """A line of the walk's log."""
        self.log.append(text)

    def look(self) -> Ledger:
        """The keys as they are now; what waits 5 s for room becomes due at the next unit of the model's time."""
        self.ledger = look(self.world.node(self.keys.meta), self.keys)
        return self.ledger

    # --- what must hold after each step

    def check(self) -> None:
        """Count everything."""
        found = self.look()
        self.catch_up(found)
        wrong = [*problems(found, self.model, self.keys)]
        ensure(not wrong, "\n".join(wrong[:6]))
        self._check_numbers(found)
        # Their place is found by what their body says, which others may write anew.
        self.ask_for(self.queues[0], [each for each in self.model.living() if each.has_unique_key][-5:])
        if self.replay is not None:
            self._check_journal(self.replay)
        self.letters = found.letters
        for each in self.model.having(DEAD):
            each.unique = ""  # a redrive does not bring it back
        self.model.forget()

    def catch_up(self, found: Ledger) -> None:
        """What was taken back or came due meanwhile: the product may do it at any time once it is time."""
        handles = {found.id_of(handle): handle for handle in (*found.leased, *found.delayed)}
        for each in [*self.model.having(LEASED, DELAYED)]:
            if each.until > self.model.now:
                continue
            handle = handles.get(each.message_id, "")
            if each.state == LEASED and (handle not in found.leased or found.leased[handle].count != each.life):
                self.take_back(each)
            elif each.state == DELAYED and (handle not in found.delayed or found.delayed[handle].due > found.now):
                each.state = WAITING  # and if it is there again, it waits for room again
        self._drop_or_bury(found)
        self._drop_letters(found)

    def take_back(self, each: Known) -> None:
        """Its lease has ended, and somebody came upon it."""
        each.state, each.error, each.plain = (GONE if each.cancelled else WAITING), "lease ended", False
        each.counts = True

    def _drop_letters(self, found: Ledger) -> None:
        """Where a tenant's oldest dead letter makes room for a new one of its own, since it has its share."""
        model = self.model
        gone = [each for each in model.having(DEAD) if each.message_id not in found.letters]
        if not model.terms.drop_dead or not gone:
            return
        for each in gone:
            each.state = GONE
        for each in gone:
            name = each.buried_as
            left = [letter.message_id for letter in model.letters_of(name)]
            ensure(not model.has_room_among(name), f"dropped: {model_text(each, model)}, and there is room")
            ensure(
                any(letter not in self.letters for letter in left), f"dropped: {model_text(each, model)} for another"
            )
            ensure(all(order(self.letters.get(each.message_id, "0-0")) < order(self.letters[letter])
                       for letter in left if letter in self.letters),
                   f"dropped: {model_text(each, model)}, and older ones stay")  # fmt: skip
        model.count("dead_dropped", len(gone))

    def _drop_or_bury(self, found: Ledger) -> None:
        """Who comes upon a stale message drops it; a doomed one is dead_lettered, or waits for room."""
        dead = {fields[b"i"].decode() for _, fields in found.streams["dead"]}
        there = {found.id_of(handle): handle for handle in found.known}
        for each in [*self.model.having(WAITING)]:
            handle = there.get(each.message_id)
            if handle is None and each.stale:
                each.state = GONE
                self.model.count("expired")
            elif (
                handle is None
                and self.model.is_doomed(each)
                and (each.message_id in dead or self.model.terms.drop_dead)
            ):
                self.bury(each)
        for each in [*self.model.having(WAITING)]:
            if (handle := there.get(each.message_id)) in found.delayed and self.model.is_doomed(each):
                self.wait_for_room(each, handle, found)

    def bury(self, each: Known) -> None:
        """To the dead letters."""
        each.state, each.reason = DEAD, each.error if each.rejected else "max deliveries"
        each.buried_as = self.model.terms.name_of(each.key)
        self.model.count("dead_lettered")

    def wait_for_room(self, each: Known, handle: str, found: Ledger) -> None:
        """It has no room among the dead letters: it is tried again in 5 s, which are a unit here."""
        name = self.model.terms.name_of(each.key)
        ensure(
            not self.model.has_room_among(name), f"waits for room: {model_text(each, self.model)}, and there is room"
        )
        ensure(
            not (self.model.terms.drop_dead and self.model.letters_of(name)),
            f"waits for room: {each.message_id}, not dropped",
        )
        left = found.delayed[handle].due - found.now
        ensure(0 < left <= 5000, f"waits for room: for {left} ms")
        put_off(self.world.node(self.keys.meta), self.keys, found, handle, UNIT - 5000)
        found.delayed[handle] = replace(found.delayed[handle], due=found.delayed[handle].due + UNIT - 5000)
        each.state, each.until = DELAYED, self.model.now + 1

    def _check_numbers(self, found: Ledger) -> None:
        """`len` and `stats` are a full count; both clients say the same by turns."""
        model, queue = self.model, self.queues[len(self.log) % 2]
        held = sum(1 for each in model.living() if model.is_held(each))
        delayed = sum(1 for each in model.having(DELAYED) if each.until > model.now)
        backlog = len(model.living()) - held - delayed - sum(map(model.is_over, model.living()))
        # What no read has taken back yet is held back, too.
        brought = sum(1 for each in model.having(DELAYED) if each.until <= model.now)
        brought += sum(map(model.has_ended, model.living()))
        stats = queue.stats()
        said = (stats.backlog, stats.in_flight, stats.delayed, stats.dead, stats.held_back, queue.len())
        wanted = (
            backlog,
            held,
            delayed,
            sum(1 for _ in model.having(DEAD)),
            len(found.held) + len(found.returned) + brought,
            backlog + held,
        )
        ensure(said == wanted, f"numbers: backlog, in flight, delayed, dead, held back, len are {said}, not {wanted}")
        waiting = Counter(found.new.values())
        ensure(stats.streams == tuple(waiting[number] for number in range(int(found.meta["streams"]))),
               f"numbers: the streams are {stats.streams}, not {waiting}")  # fmt: skip
        counters = model.counters
        told = (stats.acked, stats.expired, stats.cancelled, stats.purged, stats.dead_lettered, stats.vanished)
        counted = (*(counters.get(name, 0) for name in ("acked", "expired", "cancelled", "purged", "dead_lettered")), 0)
        ensure(
            told == counted,
            f"numbers: acked, expired, cancelled, purged, dead_lettered, vanished are {told}, not {counted}",
        )

    def ask_for(self, queue: Queue, asked: Sequence[Known]) -> None:
        """Where these messages are; also what came due, or of which the lease ended, that no read has seen yet."""
        for each in asked:
            said, wanted = queue.status(each.message_id).state, _states(each, self.model)
            ensure(said in wanted, f"status: {said}, not {wanted}: {model_text(each, self.model)}")

    # --- the journal

    def follow_journal(self) -> None:
        """From here on, where the queue has a journal."""
        self.replay = None
        if self.model.terms.journal:
            self.replay = Replay(self.queues[0])
            self.replay.position = int(self.look().meta["events"])
            for each in self.model.messages.values():
                told = Told(self._told(each), each.total, 0.0, _text(each.key))
                self.replay.known[each.message_id] = told

    def _check_journal(self, replay: Replay) -> None:
        if replay.position != int(self.ledger.meta["events"]):
            try:
                replay.follow()
            except AssertionError as error:
                raise Broken(f"journal: {error}") from error
        for each in self.model.present.values():
            said = replay.known[each.message_id].state if each.message_id in replay.known else None
            ensure(said == self._told(each), f"journal: {model_text(each, self.model)} is said to be {said}")

    def _told(self, each: Known) -> str:
        if each.cancelled and each.state == LEASED:
            return CANCELLING
        names = {WAITING: TOLD_WAITING, DELAYED: TOLD_WAITING, LEASED: IN_FLIGHT, DEAD: DEAD, GONE: GONE}
        return names[each.state]

    # --- what several steps need

    def accounts(self) -> Counter[bytes]:
        """Of each name the messages that wait and count, as `max_backlog` bounds them."""
        terms = self.model.terms
        return Counter(terms.name_of(each.key) for each in self.model.having(WAITING, DELAYED) if each.counts)

    def beyond_length(self, keys: Sequence[bytes]) -> set[int]:
        """Those of messages to come that have no place in `max_len`; accounts count what shard keys have in all."""
        terms, refused, total = self.model.terms, set[int](), len(self.model.living())
        said = self.ledger.census.said
        used = Counter({name: each.taken + each.behind + each.delayed + each.flight for name, each in said.items()})
        for at, key in enumerate(keys):
            name = terms.name_of(key)
            own = used[name] if terms.fair else 0
            if not terms.max_len or self.model.may_use(own, total, terms.max_len):
                used[name], total = used[name] + 1, total + 1
            else:
                refused.add(at)
        return refused

    def rules_changed(self) -> None:
        """Promises of order and fairness begin anew."""
        self.model.regime += 1
        self.model.unsettled = True
        for each in self.model.having(*ALIVE):
            each.quiet_since = None

    def tell_all(self) -> None:
        """Both clients look the settings up."""
        for queue in self.queues:
            queue._client.run(reopen(queue.state, queue.state.until()))


def _states(each: Known, model: Model) -> tuple[str, ...]:
    """How a status may tell of a message."""
    if each.state in (DEAD, GONE):
        return ("dead",) if each.state == DEAD else ("unknown",)
    if model.is_over(each):
        return ("unknown",)
    if model.is_held(each):
        return ("in_flight",)
    if each.state == DELAYED and each.until > model.now:
        return ("delayed",)
    return "waiting", "held_back"


def _text(key: bytes) -> str | bytes:
    """As the client shows a shard key."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key
