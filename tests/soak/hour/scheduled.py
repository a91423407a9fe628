"""A schedule of the hour: each slot is to be called once. Who runs it notes it; what is missing is found at the end.

`shardq worker tests.soak.hour.scheduled:tasks` runs it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from shardq.tasks import Tasks
from tests.soak.hour.handlers import begun, notes_of
from tests.soak.hour.world import COMMON, SCHEDULED

EVERY: Final = 5
"""Seconds between two slots."""

AHEAD: Final = 80.0
"""Seconds before a slot in which its call may be written."""

tasks: Tasks[None] = Tasks(SCHEDULED, **COMMON)


@tasks.cron(f"*/{EVERY} * * * * *", shard_key="cron", catch_up="all")
@tasks.task
def tick() -> None:
    """Note the slot as a value that was written; each has one message."""
    delivery = tasks.delivery
    notes, slot = notes_of(SCHEDULED), delivery.headers["slot"]
    notes.add("try", values=[slot])
    notes.add("wrote", values=[slot], ids=[delivery.message_id])
    number = begun(delivery, slot)
    notes.add("settling", by=notes.name, n=number, verb="ack", at=time.monotonic())


def missing(folder: Path) -> Iterator[tuple[str, float, float]]:
    """Each slot between the first and the last one that nobody ran, and when its call may have been lost."""
    seen = set[str]()
    for path in folder.glob(f"*-{SCHEDULED}.jsonl"):
        with path.open() as lines:
            seen |= {json.loads(line)["values"][0].partition(":")[2] for line in lines if '"e": "wrote"' in line}
    slots = sorted(map(datetime.fromisoformat, seen))
    boot = time.time() - time.monotonic()
    slot = slots[0] if slots else None
    while slot is not None and slot < slots[-1]:
        if slot not in slots:
            at = slot.timestamp() - boot
            yield slot.isoformat(), at - AHEAD, at
        slot += timedelta(seconds=EVERY)
