"""All modes, and their bounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from benchmarks.modes.caller import FILLED, Caller
from benchmarks.modes.cycles import WITH_ACK, empty, kept
from benchmarks.modes.mode import COMMANDS, EACH, PLAIN, SUM, Bounds, Mode
from benchmarks.modes.tenants import THOUSAND, children, floods_and_quiet, in_turn, quiet, some
from shardq import Limits

NEVER: Final = 100_000
"""A limit that is never reached."""
DUE: Final = 0.001
ANOTHER: Final = "another"
"""A tenant that writes nothing."""
NO_FUNCTIONS: Final = "~* &* +@all -function"

PLAIN_SINGLE: Final = Bounds(earlier={EACH: 1.0, WITH_ACK: 1.0})
PLAIN_BATCH: Final = Bounds(earlier={SUM: 0.9})
LIGHT: Final = Bounds({SUM: 1.15})
SINGLE: Final = Bounds({SUM: 1.4, EACH: 2.5})
BATCH: Final = Bounds({SUM: 1.6, EACH: 2.5})
OTHERS: Final = Bounds({SUM: 1.1, COMMANDS: 1.01})


# --- what is done before


def limit_everybody(**limits: Any) -> Callable[[Caller], None]:
    """Each of 1,000 tenants has limits of its own."""

    def setup(caller: Caller) -> None:
        for first in range(0, 1000, FILLED):
            caller.queue.set_limits({f"t{at}": Limits(**limits) for at in range(first, first + FILLED)})

    return setup


def limit_another(**limits: Any) -> Callable[[Caller], None]:
    """One tenant has limits."""
    return lambda caller: caller.queue.set_limits({ANOTHER: Limits(**limits)})


def weigh_everybody(caller: Caller) -> None:
    """Each of 1,000 tenants has a weight."""
    for first in range(0, 1000, FILLED):
        caller.queue.set_weights({f"t{at}": 1 + at % 3 for at in range(first, first + FILLED)})


def weigh_another(caller: Caller) -> None:
    """One tenant has a weight."""
    caller.queue.set_weights({ANOTHER: 3})


def pause_another(caller: Caller) -> None:
    """One tenant is paused."""
    caller.queue.pause(ANOTHER)


def hold_one(caller: Caller) -> None:
    """One message is in flight, and stays so."""
    caller.queue.write(b"held", shard_key=ANOTHER)
    caller.queue.read()


def cancel_one(caller: Caller) -> None:
    """One message is in flight, stays so, and was cancelled."""
    written = caller.queue.write(b"cancelled", shard_key=ANOTHER)
    caller.queue.read()
    assert caller.queue.cancel(written) == "in flight"


def hold(caller: Caller) -> None:
    """What was written is read, and stays in flight."""
    caller.read(caller.size)


def wait_until_due(_: Caller) -> None:
    """What was written with a delay is due."""
    time.sleep(4 * DUE)


def give_back(caller: Caller) -> None:
    """What was written is read, and given back."""
    caller.nack(caller.read(caller.size))


# --- the options of a message


def headers(_: int) -> Mapping[str, Any]:
    return {"headers": {"trace": "x" * 32}}


def deadline(_: int) -> Mapping[str, Any]:
    return {"deadline": 3600.0}


def delay(_: int) -> Mapping[str, Any]:
    return {"delay": DUE}


def dedup(number: int) -> Mapping[str, Any]:
    return {"dedup_key": f"key-{number}"}


def unique(number: int) -> Mapping[str, Any]:
    return {"unique_key": f"key-{number}"}


# --- the modes

FLOODS: Final = "20 floods"
LATER: Final = "plain, read 4 ms later"

PLAINS: Final = (
    Mode("plain, 1 tenant", some(1), singles=PLAIN_SINGLE, batches=PLAIN_BATCH),
    Mode("plain, 100 tenants", some(100), singles=PLAIN_SINGLE, batches=PLAIN_BATCH),
    Mode(PLAIN, singles=PLAIN_SINGLE, batches=PLAIN_BATCH, beside=""),
    Mode("plain, quiet tenants", quiet, singles=None, batches=PLAIN_BATCH),
    Mode("20 floods and quiet ones", floods_and_quiet, waiting=1000, group=20, batches=PLAIN_BATCH),
    Mode("one flood", in_turn(1), waiting=1000, group=20, batches=Bounds(earlier={SUM: 1.0})),
    Mode(FLOODS, in_turn(20), waiting=1000, group=20),
)

BACKLOGS: Final = tuple(
    Mode(f"plain, {said}", tenants, waiting=waiting)
    for said, tenants, waiting in (
        ("100 tenants, 1,000 waiting", some(100), 1000),
        ("100 tenants, 4,000 waiting", some(100), 4000),
        ("1 tenant, 2,000 waiting", some(1), 2000),
        ("1,000 tenants, 5,000 waiting", THOUSAND, 5000),
    )
)

OF_MESSAGES: Final = (
    Mode("headers", options=headers, singles=LIGHT, batches=LIGHT),
    Mode(
        "OpenTelemetry SDK on", singles=LIGHT, batches=LIGHT,
        environment={"OTEL_PYTHON_TRACER_PROVIDER": "sdk_tracer_provider"},
    ),
    Mode("dedup_key", options=dedup, singles=SINGLE, batches=BATCH),
    Mode("unique_key", options=unique, singles=SINGLE, batches=BATCH),
    Mode("deadline", options=deadline, singles=SINGLE, batches=BATCH),
    Mode(LATER, between=wait_until_due, beside=""),
    Mode(
        "delay, due when read", options=delay, between=wait_until_due, beside=LATER,
        singles=Bounds({SUM: 1.6, EACH: 2.5}), batches=Bounds({SUM: 2.2, EACH: 2.5}),
    ),
    Mode("given back once (nack)", between=give_back, singles=SINGLE, batches=BATCH),
    Mode("one cancelled in flight", setup=cancel_one, singles=SINGLE, batches=BATCH),
)  # fmt: skip

OF_QUEUES: Final = (
    Mode("journal", settings={"journal": NEVER}, singles=SINGLE, batches=BATCH),
    Mode(
        "legacy stream, empty", settings={"legacy_stream": "modes-legacy", "legacy_group": "group"},
        singles=SINGLE, batches=BATCH,
    ),
    Mode("prefer_stream", reading={"prefer_stream": 3}, singles=SINGLE, batches=BATCH),
    Mode("max_in_flight", settings={"max_in_flight": 10}, singles=SINGLE, batches=BATCH),
    Mode("rate", settings={"rate": NEVER}, singles=SINGLE, batches=BATCH),
    Mode("max_len", settings={"max_len": NEVER}, singles=SINGLE, batches=BATCH),
    Mode("results", settings={"result_ttl": 3600}, ending="result"),
    Mode("nacks", settings={"max_deliveries": 1000}, ending="nack"),
    Mode("rejects", settings={"max_dead": NEVER, "drop_dead": 1}, ending="reject"),
    Mode("max_backlog", settings={"max_backlog": 100}, singles=SINGLE, batches=BATCH),
    Mode("own caps of all tenants", setup=limit_everybody(max_in_flight=10), singles=SINGLE, batches=BATCH),
    Mode("own rates of all tenants", setup=limit_everybody(rate=NEVER), singles=SINGLE, batches=BATCH),
    Mode("own weights of all tenants", setup=weigh_everybody, singles=SINGLE, batches=BATCH),
    Mode("parents", children(1000), settings={"parents": 1}, singles=SINGLE, batches=BATCH),
    Mode("parents, 20 floods", children(20), settings={"parents": 1}, waiting=1000, group=20,
         singles=SINGLE, batches=BATCH, beside=FLOODS),
    Mode("total_in_flight", settings={"total_in_flight": NEVER}, singles=SINGLE, batches=BATCH),
    Mode("total_rate", settings={"total_rate": NEVER}, singles=SINGLE, batches=BATCH),
)  # fmt: skip

OF_ANOTHER: Final = (
    Mode("another has a cap", setup=limit_another(max_in_flight=5), singles=OTHERS, batches=OTHERS),
    Mode("another has a rate", setup=limit_another(rate=10), singles=OTHERS, batches=OTHERS),
    Mode("another has a weight", setup=weigh_another, singles=OTHERS, batches=OTHERS),
    Mode("another is paused", setup=pause_another, singles=OTHERS, batches=OTHERS),
)

EMPTY_READ: Final = "empty read, nothing in flight"
EMPTY_READS: Final = (
    Mode(EMPTY_READ, cycle=empty, beside=""),
    Mode(
        "empty read, one in flight", cycle=empty, setup=hold_one, beside=EMPTY_READ,
        singles=Bounds({"read": 1.2}), batches=Bounds({"read": 1.2}),
    ),
)  # fmt: skip


WINDOWS: Final = tuple(
    mode
    for name, tenants, waiting, bound in (
        ("quiet tenants", quiet, 0, 1.25),
        ("100 tenants", some(100), 0, 1.5),
        ("20 floods", in_turn(20), 1000, 1.3),
        ("100 floods", in_turn(100), 1000, 1.6),
    )
    for mode in (
        Mode(f"window=0, {name}", tenants, {"window": 0}, waiting=waiting, singles=None, beside=""),
        Mode(
            f"window=1, {name}", tenants, waiting=waiting, singles=None, batches=Bounds({SUM: bound}),
            beside=f"window=0, {name}",
        ),
    )
)  # fmt: skip

AS_SCRIPTS: Final = tuple(
    replace(mode, name=f"scripts: {mode.name}", user=NO_FUNCTIONS, singles=bounds, batches=bounds, beside=PLAIN)
    for mode, bounds in (
        (Mode(PLAIN), Bounds(earlier={SUM: 1.3})),
        *(
            (mode, Bounds(earlier={SUM: 0.7}))
            for mode in (*OF_MESSAGES, *OF_QUEUES)
            if mode.name in ("headers", "deadline", "max_in_flight", "journal")
        ),
    )
)

PAYLOADS: Final = tuple(
    mode
    for size in (16, 100)
    for mode in (
        Mode(f"bare XADD of {size} kB", payload=size * 1024, bare=True, beside=""),
        Mode(
            f"payload of {size} kB", payload=size * 1024, beside=f"bare XADD of {size} kB",
            singles=Bounds({"write": 2.0}), batches=Bounds({"write": 2.0}),
        ),
    )
)  # fmt: skip

MEMORY: Final = (
    Mode("memory: one flood", in_turn(1), cycle=kept, memory=200),
    Mode("memory: 1,000 tenants", cycle=kept, memory=230),
    Mode("memory: 1,000 tenants, journal", settings={"journal": 10_000_000}, cycle=kept, memory=270),
    Mode("memory: delayed", options=lambda _: {"delay": 3600.0}, cycle=kept, memory=350),
    Mode("memory: in flight", between=hold, cycle=kept, memory=300),
)

MODES: Final = {
    mode.name: mode
    for group in (
        PLAINS,
        BACKLOGS,
        OF_MESSAGES,
        OF_QUEUES,
        OF_ANOTHER,
        EMPTY_READS,
        WINDOWS,
        AS_SCRIPTS,
        PAYLOADS,
        MEMORY,
    )
    for mode in group
}
"""By name, in the order of the tables."""
