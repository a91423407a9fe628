"""Problems of a server: its version and settings, its memory, files, clients and clock, its libraries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from shardq.cli.findings.health import Health
from shardq.durability import Durability, ServerFacts, fatal, gaps, has_lua_fixes
from shardq.model.wording import number, plural, share, size, span
from shardq.outlook.findings import Finding

NEAR_SHARE: Final = 0.9
"""The share of memory or clients in use from which on it is a finding."""
MAX_OFFSET: Final = 1.0
"""Seconds by which two clocks may differ; those of NTP differ by less than a tenth."""
MAX_JUMP: Final = 0.05
MAX_NAMED: Final = 3

_OFF: Final = "it is off: a restart loses what was acknowledged."
_UNSAID: Final = {
    "append-only-file": "the server does not say whether it is on.",
    "fsync": "the server does not say when it syncs its file.",
    "replicas": "the server does not say which it waits for.",
    "eviction": "the server does not say whether it evicts messages.",
    "version": "the server does not say its version.",
}


def of_server(level: Durability, facts: ServerFacts, health: Health) -> Iterator[Finding]:
    """Yield what is wrong with the server, the worst first."""
    if problem := fatal(facts):
        yield _fatal(problem, facts)
    yield from _of_memory(facts, health)
    yield from _of_files(level, facts, health)
    for gap in gaps(level, facts):
        if gap.name != "append-only-file":
            line = _line(gap.name, level, facts) if gap.is_known else _UNSAID[gap.name]
            yield Finding(gap.name, line, _sentence(gap.text))
    yield from _of_clients(health)
    yield from _of_clock(health)
    yield from _of_lua(facts, health)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _fatal(problem: str, facts: ServerFacts) -> Finding:
    if "maxmemory" in problem:
        line = f"acknowledged messages are evicted: maxmemory-policy {facts.policy}."
        return Finding(
            "eviction", line, "No client uses such a server: set maxmemory-policy noeviction.", is_fatal=True
        )
    return Finding(
        "version",
        f"{facts} is too old.",
        "No client uses it: shardq needs Redis 7.0 or Valkey 7.2 or newer.",
        is_fatal=True,
    )


def _line(name: str, level: Durability, facts: ServerFacts) -> str:
    if name == "fsync":
        return f"a loss of power loses what durability {level} keeps."
    if name == "replicas":
        return f"durability {level} needs {level.replicas:,}; {facts.replicas or 0:,} connected."
    if name == "eviction":
        return f"with a limit it would evict messages: policy {facts.policy}."
    return f"shardq is not tested on {facts}."


def _of_memory(facts: ServerFacts, health: Health) -> Iterator[Finding]:
    if health.refused:
        yield Finding(
            "memory",
            f"Redis was full: {plural(health.refused, 'command')} refused since it started.",
            "Writers got OutOfMemory; reads and acks continue. Let workers drain the queues, raise maxmemory, or purge "
            "what nobody needs. CONFIG RESETSTAT restarts the count.",
        )
    limit = health.maxmemory or health.machine_memory
    if health.memory is None or not limit or health.memory < NEAR_SHARE * limit:
        return
    of = "its maxmemory" if health.maxmemory else "the machine's memory, and has no maxmemory"
    yield Finding(
        "memory",
        f"Redis uses {share(health.memory / limit)} of {of}.",
        f"It uses {size(health.memory)} of {size(limit)}. "
        + (
            "At the limit writes fail; reads and acks continue."
            if health.maxmemory
            else "The system ends a process that takes too much, and what is in memory alone is lost: set maxmemory."
        )
        + " Raise it, add workers, or purge what nobody needs.",
    )


def _of_files(level: Durability, facts: ServerFacts, health: Health) -> Iterator[Finding]:
    if health.failed_files:
        yield Finding(
            "persistence",
            f"Redis could not write {' or '.join(health.failed_files)}.",
            "It refuses writes until it can, or loses them at a restart: look at its disk and its log.",
        )
    if health.is_replica:
        yield Finding(
            "replica",
            "this server is one: it takes no writes.",
            "Let the URL name the primary, or the sentinels: redis+sentinel://.",
        )
    if facts.aof is False:
        needs = "" if level.level == "none" else f" Durability {level} needs it."
        yield Finding(
            "append-only-file",
            _OFF,
            f"Set appendonly yes.{needs} If all may be lost: --accept append-only-file.",
        )
    for gap in gaps(level, facts):
        if gap.name == "append-only-file" and not gap.is_known:
            yield Finding(gap.name, _UNSAID[gap.name], _sentence(gap.text))


def _of_clients(health: Health) -> Iterator[Finding]:
    if health.clients and health.max_clients and health.clients >= NEAR_SHARE * health.max_clients:
        yield Finding(
            "clients",
            f"{number(health.clients)} of {number(health.max_clients)} clients are connected.",
            "The next ones are refused: raise maxclients, or let programs share one client.",
        )


def _of_clock(health: Health) -> Iterator[Finding]:
    if health.jumped is not None and abs(health.jumped) > MAX_JUMP:
        yield Finding(
            "clock",
            f"the server's jumped by {span(abs(health.jumped))} while it was looked at.",
            "Leases and delays are counted by it: let its machine's clock be slewed, not set (chrony, ntpd -x).",
        )
    if health.offset is not None and abs(health.offset) > MAX_OFFSET + health.exact:
        where = "ahead of" if health.offset > 0 else "behind"
        yield Finding(
            "clock",
            f"the server's is {span(abs(health.offset))} {where} this machine's.",
            "Schedules and times that are shown are by the server's: set both by NTP. Leases do not suffer.",
        )


def _of_lua(facts: ServerFacts, health: Health) -> Iterator[Finding]:
    has_fixes = has_lua_fixes(facts) if health.lua_is_open is None else not health.lua_is_open
    if has_fixes is False:
        how = "Update it" if health.lua_is_open else "Update it, unless your distribution has backported them"
        yield Finding(
            "lua-fixes",
            f"{facts} lacks those of CVE-2025-49844.",
            f"A user that may run scripts may take over the server. {how}. Until then let users call functions alone: "
            "shardq server acl --no-eval.",
        )


def of_libraries(others: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Yield what is wrong with the libraries of other versions, by the names of their nodes."""
    names = sorted({name for found in others.values() for name in found})
    if names:
        yield Finding(
            "libraries",
            f"{plural(len(names), 'library', 'libraries')} of other versions of shardq.",
            "While clients of these versions run, they need them. Afterwards: shardq server lua clean.",
        )


def of_bindings(router: str, bindings: int, queues: Sequence[str]) -> Iterator[Finding]:
    """Yield the problems of a router's bindings: how many of them are of *queues* that do not exist."""
    if bindings:
        more = f" and {len(queues) - MAX_NAMED:,} more" if len(queues) > MAX_NAMED else ""
        named = ", ".join(queues[:MAX_NAMED]) + more
        yield Finding(
            "bindings",
            f"{plural(bindings, 'binding')} of queues that do not exist.",
            f"A publish by router {router} passes over {named}: declare them, or remove the bindings by "
            "shardq topics unbind --gone.",
        )
