"""Plans: limits by name that many tenants share (lua/plans.lua)."""

from __future__ import annotations

from typing import Any

from shardq.errors import ConfigError
from shardq.model import Plan
from shardq.ops.operate.limits import argument, check_plan, knows_nobody, no_plan
from shardq.ops.queue.change import change_queue, check_replicas
from shardq.ops.queue.opening import missing
from shardq.ops.queue.retry import always, retry_until
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Call, Op
from shardq.ops.queue.who import NOBODY, Who

MAX_PLANS = 64


def plans(state: QueueState, timeout: float | None = None) -> Op[dict[str, Plan]]:
    """Return all plans by name, each with how many tenants are on it."""
    call = Call.on(state.keys, "plans")
    reply = yield from retry_until(always(call), state.until(timeout), state.clock)
    if reply == b"NOQUEUE":
        raise missing(state)
    found = dict(_parsed(text.decode(), count) for text, count in zip(reply[::2], reply[1::2], strict=True))
    return {name: found[name] for name in sorted(found)}


def set_plan(state: QueueState, name: str, plan: Plan, timeout: float | None = None, who: Who = NOBODY) -> Op[None]:
    """Make or change a plan. ConfigError if there are too many, or the queue does not know its shard keys."""
    numbers = (plan.max_in_flight, plan.rate, plan.burst, plan.weight)
    yield from _change(state, name, ",".join(str(argument(each, "")) for each in numbers), who, timeout)


def delete_plan(state: QueueState, name: str, timeout: float | None = None, who: Who = NOBODY) -> Op[None]:
    """Delete a plan. ConfigError if there is none, or somebody is on it."""
    yield from _change(state, name, "", who, timeout)


def _change(state: QueueState, name: str, text: str, who: Who, timeout: float | None) -> Op[None]:
    check_plan(name)
    said = who.said_by(state)

    def make(epoch: str, following: str) -> Call:
        return Call.on(state.keys, "plan", (epoch, following, said, name, text))

    reply, underreplicated = yield from change_queue(state, make, state.until(timeout))
    if (refused := _refused(state, name, reply)) is not None:
        raise refused
    check_replicas(state, underreplicated, None)


def _refused(state: QueueState, name: str, reply: Any) -> ConfigError | None:
    match reply:
        case b"PLAIN":
            return knows_nobody(state)
        case b"NOPLAN":
            return no_plan(state, name)
        case b"MANY":
            return ConfigError(f"queue {state.keys.name!r} has {MAX_PLANS} plans, which is as many as it may have")
        case [b"USED", count]:
            who = f"{count:,} tenant{'s' * (count != 1)} of queue {state.keys.name!r}"
            text = f"{who} {'is' if count == 1 else 'are'} on plan {name!r}"
            return ConfigError(f"{text}: give them other limits by set_limits before you delete it")
    return None


def _parsed(text: str, tenants: int) -> tuple[str, Plan]:
    name, cap, rate, burst, weight = text.split(",")
    made = Plan(
        max_in_flight=int(cap) if cap else None,
        rate=float(rate) if rate else None,
        burst=int(burst) if burst else None,
        weight=int(weight),
        tenants=tenants,
    )
    return name, made
