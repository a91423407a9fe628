"""The hour: servers, processes and faults, from the first write until everything is drained and everybody has gone.

What it leaves is a folder with the history. It decides nothing itself, but fails if a process ends by itself, or if
something that was broken does not work again.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shardq import BackendError
from tests.clients import CLIENT_KINDS
from tests.servers import ServerKind
from tests.soak.hour.changes import Changes
from tests.soak.hour.dealer import Dealer, Probes
from tests.soak.hour.door_faults import DoorFaults
from tests.soak.hour.doors import Doors
from tests.soak.hour.edges import EDGED, NEVER, added
from tests.soak.hour.faults import Faults
from tests.soak.hour.notes import Notes
from tests.soak.hour.scheduled import missing
from tests.soak.hour.staff import Post, Staff
from tests.soak.hour.watch import Watch
from tests.soak.hour.world import SCHEDULED, SURE, World
from tests.waiting import eventually

BREATH: Final = (0.2, 2.0)
"""Seconds between two faults, at least and at most."""

DRAIN: Final = 180.0
"""Seconds in which all that is left is done; a bound, not a measurement."""

FEW: Final = 6
"""Faults of a short run."""

MISSING: Final = {
    "clock jumped": "there is no gcc to build what moves the clock",
    "disk full": "this user may not mount a small disk",
}
"""Why a machine may not have a fault, by its name."""


@dataclass
class Ran:
    """What a run did."""

    history: Path
    dealt: Counter[str] = field(default_factory=Counter)
    missing: dict[str, str] = field(default_factory=dict)
    """The faults that this machine cannot have, and why."""


def run(kind: ServerKind | None, folder: Path, told: Path, seed: int, seconds: float = 0) -> Ran:
    """Let everything work for so many seconds under faults. Return where the history is, and what was dealt.

    With 0 seconds it is a short run: a handful of faults, and fewer processes.

    Servers have their data in *folder*; what is *told* of the run is in a folder that stays.
    """
    history, rng = told / "history", random.Random(seed)
    history.mkdir()
    ran = Ran(history)
    with ExitStack() as stack:
        world = stack.enter_context(World(kind, folder))
        notes = {each: Notes(history, f"hour-{each}", each) for site in world.sites for each in site.queues}
        probes = Probes(world, notes)
        stack.callback(probes.close)
        doors = Doors(folder, world.site_of(EDGED).url, history, seed)
        stack.enter_context(doors.mounted())
        staff = stack.enter_context(Staff(history))
        watch = Watch(probes, notes, staff, world.servers(), doors)
        watch.keys("begin")
        for post in [*posts(world, history, seed, rng, is_long=seconds > 0), *doors.posts()]:
            staff.hire(post)
        staff.wait_ready()
        doors.wait_ready()
        with watch.begun():
            faults = Faults(world, staff, probes, next(iter(notes.values())), rng)
            changes = Changes(world, probes, rng)
            deck = faults.deck() | DoorFaults(doors, staff, rng).deck() | changes.deck(is_long=seconds > 0)
            ran.missing = {name: MISSING[name] for name in MISSING.keys() - deck.keys()}
            dealer = Dealer(deck, probes, next(iter(notes.values())), rng)
            until = time.monotonic() + seconds
            while time.monotonic() < until or (not seconds and ran.dealt.total() < FEW):
                ran.dealt[dealer.deal()] += 1
                time.sleep(rng.uniform(*BREATH) if seconds else 0)
            staff.dismiss(first=True)
            changes.undo()
            eventually(lambda: drained(world, probes, watch), DRAIN, every=0.5, what="all is drained")
        staff.dismiss(first=False)
        _note_unseen(history, notes)
        probes.patient(SCHEDULED).queue(SCHEDULED, create=False).purge()
        watch.figures(quiet=True)
        watch.keys("end")
    return ran


def _note_unseen(history: Path, notes: Mapping[str, Notes]) -> None:
    """Note what processes cannot: the ids of what the gateway stored, and slots that nobody ran."""
    for value, message_id, at in added(history):
        notes[EDGED].add("wrote", values=[value], ids=[message_id], at=at)
    scheduled = Notes(history, f"hour-{SCHEDULED}", SCHEDULED)
    for slot, begin, end in missing(history):
        scheduled.add("try", values=[slot], at=begin)
        scheduled.add("wrote", values=[slot], ids=[NEVER], at=end)


def posts(world: World, history: Path, seed: int, rng: random.Random, *, is_long: bool) -> list[Post]:
    """Who works where. In a short run there is one of each kind, with one of the clients."""
    found = []

    def add(role: str, kind: str, site: str, queues: list[str], level: str = "process") -> None:
        url = next(each.url for each in world.sites if each.name == site)
        words = ["-m", "tests.soak.hour.work", role, kind, url, str(history), "{name}", str(seed), level, *queues]
        place = "sure" if level == SURE else site
        found.append(Post(f"{role}-{kind}-{place}", words, first=role == "produce"))

    clustered = list(world.site_of("plain").queues)
    for role in ("produce", "read", "work"):
        mine = clustered if role != "produce" else [each for each in clustered if each not in ("sure", EDGED)]
        for kind in CLIENT_KINDS if is_long else rng.sample(CLIENT_KINDS, 1):
            add(role, kind, "cluster", mine)
    add("produce", "sync", "cluster", ["sure"], SURE)
    for site in world.sites[1:]:
        for role, client in (("produce", "async"), ("read", "sync"), ("work", "sync"))[: 3 if is_long else 2]:
            add(role, client, site.name, list(site.queues))
    found.append(Post("work-command", command(world, "handlers:handle", "--queue", "plain", "--processes", "2")))
    if is_long:
        found.append(Post("work-schedule", command(world, "scheduled:tasks")))
    return found


def command(world: World, what: str, *more: str) -> list[str]:
    """A worker as it is run from a shell."""
    return [
        "-m", "shardq.cli", "worker", f"tests.soak.hour.{what}", "--concurrency", "4", "--grace", "10s",
        "--url", world.site_of("plain").url, "--timeout", "20s", *more,
    ]  # fmt: skip


def drained(world: World, probes: Probes, watch: Watch) -> bool:
    """Whether nothing is left to do. Dead letters go back."""
    for site in world.sites:
        for name in site.queues:
            queue = probes.client(name).queue(name, create=False)
            try:
                while letters := queue.dead(500):
                    queue.redrive(letters)
            except BackendError:
                return False
    found = watch.figures()
    names = {name for site in world.sites for name in site.queues}
    return found.keys() == names and all(
        each.backlog + each.in_flight + each.delayed + each.dead == 0 for each in found.values()
    )
