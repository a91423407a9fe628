"""A walk is planned, done, and if it breaks reduced to a short list of steps: all from one printed seed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from shardq import Client
from tests.conformance.walk.base import STREAMS, Broken
from tests.conformance.walk.ending import Walker
from tests.conformance.walk.model import Terms
from tests.conformance.world import World
from tests.state import set_line

WEIGHTS = {
    "write": 6, "write_many": 4, "flood": 1, "whisper": 1, "write_stale": 0.7, "write_once": 2, "write_unique": 2,
    "write_keyed": 2, "ask": 2, "read": 9, "read_singly": 3, "lose_a_read": 1,
    "ack": 5, "nack": 3, "reject": 1, "extend": 1, "extend_many": 0.7, "ack_many": 3, "nack_many": 2,
    "reject_many": 0.4, "cancel": 2, "purge": 0.3, "redrive": 1, "resize": 0.4, "assign": 0.4, "unassign": 0.2,
    "weigh": 0.5, "delete_dead": 0.5, "nack_uncounted": 1, "purge_of": 0.7, "cancel_where": 0.7, "retry_where": 0.7,
    "redrive_where": 0.5, "delete_where": 0.3,
    "limit": 0.7, "pause": 0.5, "resume": 0.5, "switch_total": 0.3, "switch_rate": 0.3,
    "switch_window": 0.4, "switch_cap": 0.4, "switch_backlog": 0.3, "switch_parents": 0.4, "switch_deaths": 0.3,
    "switch_bounds": 0.3, "switch_journal": 0.2, "switch_memory": 0.1, "forget_scripts": 0.1, "pass_time": 3,
}  # fmt: skip
MOODS: dict[str, dict[str, float]] = {
    "anything": {},
    "floods": {"flood": 5, "whisper": 8, "write": 6, "read_singly": 14, "read": 7} | dict.fromkeys(
        ("purge", "purge_of", "cancel_where", "retry_where",
         "resize", "assign", "unassign", "weigh", "limit", "pause", "resume", "switch_total", "switch_rate",
         "switch_window", "switch_cap", "switch_backlog",
         "switch_bounds", "switch_parents", "switch_deaths"), 0.0),
    "deaths": {"nack": 8, "nack_many": 6, "reject": 5, "reject_many": 3, "redrive": 5, "delete_dead": 2,
               "cancel": 4, "ack_many": 1},
    "keys": {"write_unique": 10, "write_keyed": 6, "write_once": 3, "write": 2, "write_many": 1, "pass_time": 6,
             "nack": 5, "read": 5, "read_singly": 1},
}  # fmt: skip
"""Whether many messages wait under steady rules, few live for long, or most have keys: else each walk has a little of
everything."""

ALWAYS = {"write", "write_many", "read", "ack", "ack_many", "pass_time"}
NUMBERS = itertools.count()


@dataclass(frozen=True)
class Plan:
    """Which steps, by number: the choices of each come from the seed and its number, so any may be left out."""

    seed: str
    steps: tuple[int, ...]

    @classmethod
    def of(cls, seed: str, count: int) -> Plan:
        """So many steps."""
        return cls(seed, tuple(range(count)))

    @property
    def mood(self) -> str:
        """What it is about."""
        return random.Random(f"{self.seed} mood").choice(("anything", "anything", "floods", "deaths", "keys"))

    def verbs(self) -> dict[str, float]:
        """What may happen, how often: of all that a queue can do a part, another one in each walk."""
        rng = random.Random(f"{self.seed} verbs")
        verbs = [verb for verb in WEIGHTS if verb in ALWAYS or rng.random() < 0.6]
        return {verb: MOODS[self.mood].get(verb, WEIGHTS[verb]) for verb in verbs}

    def terms(self) -> tuple[Terms, bool]:
        """The settings to begin with, and whether readers may be blocked all the time."""
        rng = random.Random(f"{self.seed} terms")
        window = 1 if self.mood == "floods" else rng.choice((0, 1, 1, 2, 3))
        few = rng.choice((1, 3, 1000, 1000))
        backlog = rng.choice((0, 0, 0, 8)) if self.mood != "floods" else 0
        return Terms(
            streams=rng.choice(STREAMS), per_shard=rng.choice((1, 2, 2, 4)), window=window,
            cap=rng.choice((0, 0, 0, 2, 5)), max_backlog=backlog, parents=rng.choice((0, 0, 1)),
            max_deliveries=2 if self.mood == "deaths" else rng.choice((2, 3, 4, 4)), dedup_window=rng.randint(1, 4),
            max_len=rng.choice((0, 0, 30)) if not backlog and self.mood != "floods" else 0,
            max_dedup=rng.choice((5, 1_000_000)), max_dead=few, journal=rng.choice((0, 0, 100_000)),
            key_scope="queue" if rng.random() < 0.3 else "shard_key",
        ), rng.random() < 0.3  # fmt: skip


def walk(plan: Plan, world: World, clients: Sequence[Client]) -> tuple[list[str], Broken | None]:
    """Do it on a queue of its own: what was done, and how it broke if it did."""
    walker = _begin(plan, world, clients)
    verbs = plan.verbs()
    try:
        for number in plan.steps:
            rng = random.Random(f"{plan.seed} step {number}")
            (verb,) = rng.choices([*verbs], [*verbs.values()])
            getattr(walker, verb)(rng)
            walker.check()
        walker.say("the end")
        walker.finish()
    except Broken as broken:
        return walker.log, broken
    except Exception as error:  # noqa: BLE001 - whatever the product raises where the model says it works
        return walker.log, Broken(f"{type(error).__name__}: {error}")
    finally:
        world.raw.flushall()
    return walker.log, None


def _begin(plan: Plan, world: World, clients: Sequence[Client]) -> Walker:
    terms, announced = plan.terms()
    name = f"walk.{next(NUMBERS)}"
    queues = [
        client.queue(
            name, streams=terms.streams, streams_per_shard=terms.per_shard, window=terms.window,
            max_in_flight=terms.cap, max_backlog=terms.max_backlog, max_len=terms.max_len, max_dedup=terms.max_dedup,
            parents=terms.parents, journal=terms.journal,
            max_deliveries=terms.max_deliveries, max_dead=terms.max_dead, dedup_window=terms.dedup_window * 1000.0,
            key_scope=terms.key_scope,
        )
        for client in clients
    ]  # fmt: skip
    walker = Walker(world, queues, terms)
    walker.model.count("producers", 2 * len(queues))  # a batch that was refused in part writes the rest in another
    if announced:
        set_line(world.raw, walker.keys, waiting=9 * 10**14)
    walker.say(f"begin, {plan.mood}: {terms}{', readers blocked' if announced else ''}")
    return walker


def shrink(plan: Plan, broken: Broken, again: Callable[[Plan], Broken | None], most: int = 150) -> Plan:
    """The fewest steps found that break it in the same way: whole parts are left out, then smaller ones."""
    size = max(1, len(plan.steps) // 2)
    while most > 0:
        at, smaller = 0, plan
        while at < len(smaller.steps) and most > 0:
            tried = replace(smaller, steps=smaller.steps[:at] + smaller.steps[at + size :])
            found, most = again(tried), most - 1
            if found is not None and found.kind == broken.kind:
                smaller = tried
            else:
                at += size
        if size == 1 and smaller == plan:
            break
        plan, size = smaller, max(1, size // 2)
    return plan
