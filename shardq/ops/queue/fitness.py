"""Whether the server is fit for a durability level, by its INFO and CONFIG."""

from __future__ import annotations

from typing import Any

from shardq.clock import Clock
from shardq.durability import CONFIG_NAMES, Durability, ServerFacts, fatal, judge
from shardq.errors import (
    BackendError,
    BackendTimeout,
    ServerUnfit,
)
from shardq.ops.queue.retry import UNKNOWN_USER, always, retry_until
from shardq.ops.queue.steps import Ask, Op, Refused


def inspect_server(clock: Clock, durability: Durability, timeout: float) -> Op[list[str]]:
    """Compare the server with the durability level and return warnings. ServerUnfit if it would lose messages."""
    facts = yield from server_facts(clock, timeout)
    if problem := fatal(facts):
        raise ServerUnfit(problem)
    return judge(durability, facts)


def server_facts(clock: Clock, timeout: float) -> Op[ServerFacts]:
    """Return what the server's INFO and CONFIG say that matters for durability."""
    until = clock.monotonic() + timeout
    info = yield from _ask(("INFO",), until, clock)
    config = yield from _ask(("CONFIG", "GET", *CONFIG_NAMES), until, clock)
    return ServerFacts.from_replies(_info(info), dict(zip(config[::2], config[1::2], strict=True)) if config else {})


def _ask(words: tuple[str, ...], until: float, clock: Clock) -> Op[Any]:
    try:
        return (yield from retry_until(always(Ask(words)), until, clock))
    except BackendTimeout:
        raise
    except BackendError as error:
        if isinstance(error.__cause__, Refused) and error.__cause__.code in UNKNOWN_USER:
            raise  # every other call would fail as well
        return None  # managed services forbid these commands; the facts stay unknown


def _info(raw: bytes | None) -> dict[str, str]:
    lines = (raw or b"").decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)
