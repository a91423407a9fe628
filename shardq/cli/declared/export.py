"""Write a file that declares what Redis has, so that applying it changes nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from shardq.cli.text import ends_at, is_control
from shardq.declared.declaration import stored_settings
from shardq.model import Control, Limits
from shardq.protocol.bodies import text_or_bytes

if TYPE_CHECKING:
    from shardq.client import Client


def exported(client: Client, names: Sequence[str], routers: Sequence[str]) -> tuple[str, list[str]]:
    """Return the text of the file, and what it cannot say: shard keys that are no text."""
    left_out: list[str] = []
    lines: list[str] = []
    for name in names:
        lines += _queue(client, name, left_out)
    for router in routers:
        for pattern, queue in sorted(client.router(router).bindings()):
            if queue in names:
                lines += ["[[bindings]]", f"pattern = {_value(pattern)}", f"queue = {_value(queue)}"]
                lines += [f"router = {_value(router)}", ""] if router != "default" else [""]
    return "\n".join(lines), left_out


def _queue(client: Client, name: str, left_out: list[str]) -> Iterator[str]:
    queue = client.queue(name)
    yield f"[queues.{_value(name)}]"
    for setting, value in stored_settings(queue.settings()).items():
        yield f"{setting} = {_value(value)}"
    yield ""
    controls, stored = queue.controls(), queue.assignment()
    yield from _that_end("weight", controls.weights)
    yield from _that_end("limits", controls.limits)
    weights = {key: each.weight for key, each in controls.weights.items() if math.isinf(each.until)}
    left_out += [f"the weight of {key!r} in queue {name!r}" for key in weights if isinstance(key, bytes)]
    if weights:
        yield f"[queues.{_value(name)}.weights]"
        for key in sorted(key for key in weights if isinstance(key, str)):  # so that two files can be compared
            yield f"{_value(key)} = {weights[key]}"
        yield ""
    for plan, each in controls.plans.items():
        yield f"[queues.{_value(name)}.plans.{_value(plan)}]"
        yield from (f"{key} = {_value(value)}" for key, value in each.settings().items())
        yield ""
    limits = {key: each.limits for key, each in controls.limits.items() if math.isinf(each.until)}
    left_out += [f"the limits of {key!r} in queue {name!r}" for key in limits if isinstance(key, bytes)]
    yield from _limits(name, {key: each for key, each in limits.items() if isinstance(key, str)})
    if len(stored):
        keys = [text_or_bytes(key) for key, _ in stored.items()]
        left_out += [f"the shard of {key!r} in queue {name!r}" for key in keys if isinstance(key, bytes)]
        yield f"[queues.{_value(name)}.assignment]"
        yield f"keys = {_value([key for key in keys if isinstance(key, str)])}"
        yield f"max_overlap = {stored.max_overlap}"
        yield ""


def _that_end(what: str, controls: Mapping[str | bytes, Control]) -> Iterator[str]:
    """Return comments on what is left out, since it ends by itself: a file says what is to be for good."""
    ending = {key: each for key, each in controls.items() if not math.isinf(each.until)}
    for key in sorted(ending, key=str):
        spelled = _value(key if isinstance(key, str) else repr(key))
        yield f"# left out, since it ends at {ends_at(ending[key].until, UTC)}: {what} of {spelled}"
    if ending:
        yield ""


def _limits(name: str, limits: Mapping[str, Limits | str]) -> Iterator[str]:
    """Return the plans of shard keys in one table, and the limits of others each in one of its own."""
    on_plans = {key: each for key, each in sorted(limits.items()) if isinstance(each, str)}
    if on_plans:
        yield f"[queues.{_value(name)}.limits]"
        yield from (f"{_value(key)} = {_value(plan)}" for key, plan in on_plans.items())
        yield ""
    for key, each in sorted(limits.items()):
        if isinstance(each, Limits):
            yield f"[queues.{_value(name)}.limits.{_value(key)}]"
            numbers = asdict(each).items()
            yield from (f"{limit} = {_value(number)}" for limit, number in numbers if number is not None)
            yield ""


def _value(value: Any) -> str:
    """Return a value as TOML. Its texts, numbers and lists are written as those of JSON, but for some characters."""
    text = "'none'" if value is None else json.dumps(value, ensure_ascii=False)
    return "".join(_escaped(char) if is_control(char) else char for char in text)


def _escaped(char: str) -> str:
    """Return a character that would control a terminal as TOML spells it, which has no pairs of surrogates."""
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
