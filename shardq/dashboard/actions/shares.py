"""A tenant's share beside others: limits of its own for a while, a plan, and a weight."""

from __future__ import annotations

import math
from typing import Any, Final

from shardq.dashboard.actions.dialog import Desk, DialogAction, DialogDone, DialogLine, DialogText, line
from shardq.dashboard.actions.fields import DURATION_FIELD, DURATIONS, NOTE, Field, Wish
from shardq.dashboard.actions.given import Given, Takes
from shardq.dashboard.actions.look import State, agree_on, controls_of, foresight, queue_of, tenant_of, whose
from shardq.dashboard.actions.refused import ActionRefused
from shardq.dashboard.people import Role
from shardq.model import Controls, Limits, Plan, Tenant
from shardq.model.controls import Control, LimitControl
from shardq.model.limits import MAX_WEIGHT
from shardq.model.wording import number, plural, span
from shardq.ops.operate import limits, weights
from shardq.ops.queue.change import Agree
from shardq.ops.queue.who import Who
from shardq.outlook.foresight import LONG_WAIT_SECONDS, Effect, Foresight
from shardq.outlook.names import name_of
from shardq.outlook.sentence import At, Parts
from shardq.partitions.over import change

MAX_RATE: Final = 1_000_000.0
MAX_IN_FLIGHT: Final = 2**40
NO_PLAN: Final = Plan()

_RATE = Field("rate", "Deliveries a second", "number", hint="empty: as the queue says", low=0.001, high=MAX_RATE)
_IN_FLIGHT = Field(
    "max_in_flight", "In flight at once", "number", hint="empty: as the queue says", low=1, high=MAX_IN_FLIGHT,
    is_whole=True,
)  # fmt: skip
_WEIGHT = Field("weight", "Weight", "number", low=1, high=MAX_WEIGHT, is_whole=True)
_PLAN = Field("plan", "Plan", "choice", choices=(("", "no plan"),), is_open=True)


async def _say_limit(desk: Desk, given: Given, wish: Wish) -> DialogText:
    controls = await controls_of(desk.source, given.queue, given.key)
    has, sight = await _tenant(desk, given)
    own = controls.limits.get(given.tenant)
    values: dict[str, str] = {}
    if wish.is_first and own is not None and isinstance(own.limits, Limits):
        values = {name: _typed(getattr(own.limits, name)) for name in ("rate", "max_in_flight")}
    rate: float | None = _number(values.get("rate")) if values else wish["rate"]
    most: int | None = _number(values.get("max_in_flight")) if values else wish["max_in_flight"]
    lines = [_limits_now(has, own, controls)]
    if rate is None and most is None:
        told = "Say how many a second, or how many at once." if own is None else "Its own limits are gone then."
        lines.append(line(told))
    else:
        limits = [*([f"{rate:,g} a second"] if rate else []), *([f"{most:,} in flight"] if most else [])]
        most_of = f"At most {' and '.join(limits)}, "
        lines.append(line(most_of, _ends(wish, controls.time), ". The rest waits, and delays nobody."))
        if wish["seconds"] and own is not None:
            told = "At the end it has no limits of its own: those of now do not come back."
            lines.append(line(told, tone="warn"))
    lines += _served(has, sight.limited(has.shard_key, rate=rate, max_in_flight=most))
    title = f"Limit {whose(given.key, given.queue)}"
    state = _limit_state(controls, given)
    return DialogText(title, "Limit", lines, values=values, state=state, changed={"its limits": _limits_changed(own)})


def _limit_state(controls: Controls, given: Given) -> State:
    own = controls.limits.get(given.tenant)
    return {"its limits": None if own is None else (str(own.limits), own.until, own.by, own.since)}


async def _limit(desk: Desk, given: Given, wish: Wish, said: DialogText, now: DialogText) -> DialogDone:
    wanted = Limits(rate=wish["rate"], max_in_flight=wish["max_in_flight"])
    is_none = wanted == Limits()
    if is_none and said.state["its limits"] is None:
        raise ActionRefused("Say how many deliveries a second, or how many messages in flight at once.")
    agree = agree_on(desk.source, given.queue, given.key, said.state, lambda found: _limit_state(found, given))
    await _set_limits(desk, given, wanted, None if is_none else _seconds(wish), wish["note"], agree)
    name = whose(given.key, given.queue)
    return DialogDone(f"{name} has no limits of its own." if is_none else f"{name} is limited {_for(wish)}.")


async def _say_plan(desk: Desk, given: Given, wish: Wish) -> DialogText:
    controls = await controls_of(desk.source, given.queue, given.key)
    title = f"Plan of {whose(given.key, given.queue)}"
    if not controls.plans:
        told = "The queue has no plans: `shardq limits` makes them, with --set-plan."
        return DialogText(title, "", [line(told)], is_possible=False)
    has, sight = await _tenant(desk, given)
    own = controls.limits.get(given.tenant)
    values = {"plan": has.plan or ""} if wish.is_first else {}
    name = values.get("plan", wish["plan"])
    if name and name not in controls.plans:
        raise ActionRefused(f"There is no plan {name_of(name)} any more.")
    plan = controls.plans[name] if name else NO_PLAN
    lines = [_limits_now(has, own, controls)]
    if name:
        what = f": {_plan_words(plan)}; {plural(plan.tenants, 'tenant is', 'tenants are')} on it now."
        lines.append(line(f"On {name} ", _ends(wish, controls.time), what))
    else:
        lines.append(line("Without a plan the limits of the queue count."))
    if own is not None and not isinstance(own.limits, str):
        lines.append(line("Its own limits are gone then.", tone="warn"))
    lines += _served(
        has, sight.limited(has.shard_key, rate=plan.rate, max_in_flight=plan.max_in_flight, weight=plan.weight)
    )
    choices = (("", "no plan"), *((each, f"{each}: {_plan_words(plan)}") for each, plan in controls.plans.items()))
    changed = {"its limits": _limits_changed(own), "the plan": f"the plan is {_plan_words(plan)} by now"}
    state = _plan_state(controls, given, name)
    return DialogText(title, "Set the plan", lines, {"plan": choices}, values, state=state, changed=changed)


def _plan_state(controls: Controls, given: Given, name: str) -> State:
    plan = controls.plans.get(name) if name else NO_PLAN
    return {**_limit_state(controls, given), "the plan": None if plan is None else _plan_words(plan)}


async def _plan(desk: Desk, given: Given, wish: Wish, said: DialogText, now: DialogText) -> DialogDone:
    name, whom = wish["plan"], whose(given.key, given.queue)
    agree = agree_on(desk.source, given.queue, given.key, said.state, lambda found: _plan_state(found, given, name))
    await _set_limits(desk, given, name or Limits(), _seconds(wish) if name else None, wish["note"], agree)
    return DialogDone(f"{whom} is on plan {name} {_for(wish)}." if name else f"{whom} is on no plan.")


async def _say_weight(desk: Desk, given: Given, wish: Wish) -> DialogText:
    controls = await controls_of(desk.source, given.queue, given.key)
    has, sight = await _tenant(desk, given)
    own = controls.weights.get(given.tenant)
    values = {"weight": str(has.weight)} if wish.is_first else {}
    weight: int | None = has.weight if wish.is_first else wish["weight"]
    if weight is None:
        raise ActionRefused("Say a weight, from 1 to 100.")
    lines = [line(f"Its weight is {has.weight}", _given_by(own, controls.time), ".")]
    if weight != has.weight:
        share = "the same share as one" if weight == 1 else f"{weight} times the share of one"
        lines.append(line(f"While others wait, it has {share} of weight 1, ", _ends(wish, controls.time), "."))
        lines += _served(has, sight.weighed(has.shard_key, weight))
    if wish["seconds"] and weight != 1:
        lines.append(line("After that it is 1."))
    changed = {"its weight": f"{_by(own)} has given it the weight {has.weight} meanwhile"}
    title, state = f"Weight of {whose(given.key, given.queue)}", _weight_state(controls, given)
    return DialogText(title, "Set the weight", lines, values=values, state=state, changed=changed)


def _weight_state(controls: Controls, given: Given) -> State:
    own = controls.weights.get(given.tenant)
    return {"its weight": None if own is None else (own.weight, own.until, own.by, own.since)}


async def _weight(desk: Desk, given: Given, wish: Wish, said: DialogText, now: DialogText) -> DialogDone:
    weight: int = wish["weight"]
    seconds = None if weight == 1 else _seconds(wish)
    state, who = queue_of(desk.source, given.queue).state, Who(desk.person.name, wish["note"])
    agree = agree_on(desk.source, given.queue, given.key, said.state, lambda found: _weight_state(found, given))
    changes = {given.tenant: weight}
    op = change(state, lambda each, agree: weights.set_weights(each, changes, None, seconds, who, agree), agree)
    await desk.source.client.run(op)
    return DialogDone(f"{whose(given.key, given.queue)} has weight {weight}{'' if weight == 1 else ' ' + _for(wish)}.")


async def _tenant(desk: Desk, given: Given) -> tuple[Tenant, Foresight]:
    has = await tenant_of(desk.source, given.queue, given.tenant)
    return has, await foresight(desk.source, given.queue)


async def _set_limits(
    desk: Desk, given: Given, wanted: Limits | str, seconds: float | None, note: str, agree: Agree
) -> None:
    state, who = queue_of(desk.source, given.queue).state, Who(desk.person.name, note)
    changes = {given.tenant: wanted}
    op = change(state, lambda each, agree: limits.set_limits(each, changes, None, seconds, who, agree), agree)
    await desk.source.client.run(op)


def _limits_changed(own: LimitControl | None) -> str:
    """Say what somebody has done who was faster."""
    if own is None:
        return "its own limits have ended meanwhile"
    if isinstance(own.limits, str):
        return f"{_by(own)} has put it on the plan {own.limits} meanwhile"
    return f"{_by(own)} has limited it to {_limit_words(own.limits)} meanwhile"


def _by(own: Control | None) -> str:
    return name_of(own.by) if own is not None and own.by else "somebody"


def _limits_now(has: Tenant, own: Control | None, controls: Controls) -> DialogLine:
    plan = f", by plan {has.plan}" if has.plan else ""
    return line(f"Now it may have {_limit_words(has.limits)}{plan}", _given_by(own, controls.time), ".")


def _given_by(own: Control | None, now: float) -> Parts:
    if own is None or not own.by:
        return []
    ends: Parts = [] if math.isinf(own.until) else [", until ", At(own.until, now)]
    return [f" ({name_of(own.by)}", *ends, ")"]


def _limit_words(limits: Limits) -> str:
    words = [
        *([f"{limits.rate:,g} a second"] if limits.rate else []),
        *([f"{number(limits.max_in_flight)} in flight"] if limits.max_in_flight else []),
    ]
    return " and ".join(words) or "any number"


def _plan_words(plan: Plan) -> str:
    return f"{_limit_words(plan)}, weight {plan.weight}"


def _served(has: Tenant, effect: Effect) -> list[DialogLine]:
    """Say what it means for the waiting messages of the tenant, and for the others."""
    lines: list[DialogLine] = []
    waits = "waits" if has.backlog == 1 else "wait"
    if has.backlog and effect.own_after is not None:
        before = "" if effect.own_before is None else f" instead of {span(effect.own_before)}"
        is_same = effect.own_before is not None and abs(effect.own_after - effect.own_before) < 1
        told = "as it would be anyway" if is_same else f"in about {span(effect.own_after)}{before}"
        is_ = "is" if has.backlog == 1 else "are"
        lines.append(line(f"Its {plural(has.backlog, 'waiting message')} {is_} served {told}."))
    elif has.backlog:
        lines.append(line(f"{plural(has.backlog, 'message')} of it {waits} now."))
    if told := effect.on_others():
        lines.append(line(told, tone="warn" if (effect.longer or 0) > LONG_WAIT_SECONDS else ""))
    return lines


def _seconds(wish: Wish) -> float | None:
    return float(wish["seconds"]) if wish["seconds"] else None


def _ends(wish: Wish, now: float) -> Parts:
    seconds = _seconds(wish)
    return ["without an end"] if seconds is None else ["until ", At(now + seconds, now)]


def _for(wish: Wish) -> str:
    return f"for {dict(DURATIONS)[wish['seconds']]}" if wish["seconds"] else "without an end"


def _typed(value: float | None) -> str:
    return "" if not value else f"{value:.15g}"


def _number(text: str | None) -> Any:
    return None if not text else int(text) if text.isdecimal() else float(text)


_OPEN: Final = DURATION_FIELD.with_value("")

LIMIT = DialogAction("limit", Role.ACT, Takes(key=True), (_RATE, _IN_FLIGHT, DURATION_FIELD, NOTE), _say_limit, _limit)
PLAN = DialogAction("plan", Role.ACT, Takes(key=True), (_PLAN, _OPEN, NOTE), _say_plan, _plan)
WEIGHT = DialogAction("weight", Role.ACT, Takes(key=True), (_WEIGHT, _OPEN, NOTE), _say_weight, _weight)
