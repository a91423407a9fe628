"""What processes log of a run, as types: JSON lines, each written whole by one system call.

Times are seconds of CLOCK_MONOTONIC, which all processes of one machine share. A value is a payload that names one
write; a delivery is known by its consumer and a number, `by` and `n`. The class of an event is in its field `e`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct, field

MAX_LINE: Final = 1 << 20
"""Bytes of an event."""

MAX_EVENTS: Final = 20_000_000
"""Of a folder: a longer history fits into no memory."""

MAX_DAMAGES: Final = 20
"""Places that are named."""

Name: TypeAlias = Annotated[str, Meta(max_length=1_000)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]


class Try(Struct, tag_field="e", tag="try", gc=False):
    """Values that a producer is about to write."""

    values: list[Name]
    queue: Name = ""
    at: float = math.nan


class Wrote(Struct, tag_field="e", tag="wrote", gc=False):
    """The ids of the values of a write, in its order. Each can be delivered after `delay` seconds."""

    values: list[Name]
    ids: list[Name]
    queue: Name = ""
    at: float = math.nan
    delay: float = 0.0


class Got(Struct, tag_field="e", tag="got", gc=False):
    """One delivery: asked for at `asked`, in hand at `at`, believed in until `until`, over at `ends` for certain."""

    by: Name
    n: int
    id: Name
    value: Name
    count: int
    asked: float
    at: float
    until: float
    ends: float
    batch: int
    queue: Name = ""


class Extended(Struct, tag_field="e", tag="extended", gc=False):
    """The lease was moved."""

    by: Name
    n: int
    until: float
    ends: float


class Settling(Struct, tag_field="e", tag="settling", gc=False):
    """A delivery is about to be acked, nacked or rejected; what is given back comes again after `delay` seconds."""

    by: Name
    n: int
    verb: Name
    at: float
    delay: float = 0.0


class Settled(Struct, tag_field="e", tag="settled", gc=False):
    """How that ended."""

    by: Name
    n: int
    ok: bool
    at: float


class Dropped(Struct, tag_field="e", tag="dropped", gc=False):
    """A message that may end without an ack: cancelled, purged, a dead letter, replaced, expired."""

    queue: Name
    id: Name
    why: Name


class LostAllowed(Struct, tag_field="e", tag="lost_allowed", gc=False):
    """The time in which what happened (`by`) may lose what the level of durability in `why` allows."""

    queue: Name
    why: Name
    begin: float = field(name="from")
    until: float
    by: Name = "promotion"


class Fault(Struct, tag_field="e", tag="fault", gc=False):
    """Something that is broken from `at` to `until`."""

    name: Name
    target: Name
    at: float
    until: float


class Recovered(Struct, tag_field="e", tag="recovered", gc=False):
    """A target works again, `took` seconds after the fault's end. One fault may affect several."""

    name: Name
    target: Name
    at: float
    took: float


class Told(Struct, tag_field="e", tag="told", gc=False):
    """What a call ended with: "ok", or the name of an error's class. A write without `values` is the last one tried."""

    who: Name
    call: Name
    at: float
    answered: float
    timeout: float | None
    outcome: Name
    values: list[Name] = []
    queue: Name = ""


class Figures(Struct, tag_field="e", tag="figures", gc=False):
    """The numbers of a queue: `length` wait, and a worker could have `ready` of them. `quiet`: nothing is under way."""

    queue: Name
    at: float
    length: Count
    ready: Count
    in_flight: Count
    delayed: Count
    dead: Count
    quiet: bool
    asked: float | None = None


class Process(Struct, tag_field="e", tag="process", gc=False):
    """What a process has; `rss` is in bytes."""

    who: Name
    pid: Count
    at: float
    rss: Count
    fds: Count
    threads: Count


class Keys(Struct, tag_field="e", tag="keys", gc=False):
    """What a server has; `memory` is in bytes."""

    at: float
    when: Literal["begin", "end"]
    server: Name
    count: Count
    memory: Count


Event: TypeAlias = (
    Try | Wrote | Got | Extended | Settling | Settled | Dropped | LostAllowed | Fault | Recovered | Told | Figures
    | Process | Keys
)  # fmt: skip

_DECODER: Final = msgspec.json.Decoder(Event)


class HistoryTooLong(Exception):
    """The history has more events than a judgement can hold."""


def typed(raw: Mapping[str, Any]) -> Any:
    """One event, from its fields."""
    return msgspec.convert(raw, Event)


def files(folder: Path) -> list[Path]:
    """The logs of a folder, one of each process."""
    return sorted(folder.glob("*.jsonl"))


def read(path: Path, damages: list[str]) -> Iterator[Event]:
    """The events of one log, in its order. A line that is none is skipped, and named in *damages*."""
    with path.open("rb") as lines:
        for number in range(1, MAX_EVENTS + 2):
            line = lines.readline(MAX_LINE + 1)
            if not line:
                return
            if number > MAX_EVENTS:
                raise HistoryTooLong(f"{path.name} has more than {MAX_EVENTS:,} events")
            try:
                if not line.endswith(b"\n"):
                    raise ValueError("it does not end")
                yield _DECODER.decode(line)
            except ValueError as error:  # msgspec's errors are, too
                if len(damages) < MAX_DAMAGES:
                    damages.append(f"{path.name}, line {number}: {error}")
