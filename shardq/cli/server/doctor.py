"""`shardq server doctor`: what breaks queues, or will, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import shardq
from shardq.cli.exits import FAILED, OK
from shardq.cli.findings.finding import NAMES, checked_names, lines, not_accepted
from shardq.cli.findings.health import PINGS, Health, health
from shardq.cli.findings.of_partitions import of_partitions
from shardq.cli.findings.of_rights import of_rights
from shardq.cli.findings.of_server import of_bindings, of_libraries, of_server
from shardq.cli.findings.rights import lacking, user_name
from shardq.cli.grid import listing
from shardq.cli.looking import allowed, is_unread
from shardq.cli.nodes import NodeRow, address_of, driver_for, nodes_of
from shardq.cli.parsing import Args, argument, command, flag
from shardq.cli.shell import Shell
from shardq.cli.text import shown_url
from shardq.cli.width import wrapped
from shardq.clock import SystemClock
from shardq.durability import Durability, ServerFacts, has_lua_fixes
from shardq.errors import BackendError, BackendTimeout
from shardq.model.partitions import map_of
from shardq.model.wording import number, plural, size, span
from shardq.ops.operate.libraries import loaded_libraries, runs_library, why_no_library
from shardq.ops.queue.fitness import server_facts
from shardq.ops.queue.sight import sight
from shardq.ops.topics.bindings import RouterState
from shardq.ops.topics.gone import bound_queues
from shardq.outlook.findings import Finding, Pause, of_leases, of_pauses, of_reading, of_silent
from shardq.partitions.late import silent
from shardq.partitions.map import PartitionMap
from shardq.protocol import scripts
from shardq.protocol.keys import RouterKeys
from shardq.protocol.roles import ROLES

if TYPE_CHECKING:
    from shardq.client import Client, Queue
    from shardq.drivers import Driver

ABOUT = f"""Looks at the server, and at each queue or those that are named. Each finding is a line with its name, and
below it what to do. Exit code 1 if there is one, else 0. `--accept NAME` leaves out what your team accepts;
NAME:QUEUE only where it is of this queue.

The durability levels are none, process (writes survive a crash of Redis), disk (they survive a power loss) and
replica(n) (they survive the loss of the primary). Whether a user has the rights of its role is checked if you say
which (--role, --user), by ACL DRYRUN, which only some users may ask. Facts that could not be checked are named, too.

findings:
{chr(10).join(f"  {name:<16}  {about}" for name, about in NAMES.items())}"""

EXAMPLES = """  shardq server doctor
  shardq server doctor --accept append-only-file --accept paused:invoices
  shardq server doctor orders --user api --role producer
  shardq server doctor --durability 'replica(2)' --json"""


SAME_CLOCK = 0.02
"""Seconds by which clocks may differ that are called the same."""


@dataclass
class Examined:
    """The facts about a server that were found, and those that were not: `unchecked` has a reason by the fact.

    `libraries` says of each node how calls run there.
    """

    facts: ServerFacts
    health: Health
    findings: list[Finding] = field(default_factory=list)
    libraries: dict[str, str] = field(default_factory=dict)
    bindings: int | None = None
    user: str | None = None
    queues: int | None = None
    unchecked: dict[str, str] = field(default_factory=dict)


@command(ABOUT, EXAMPLES)
@argument("queues", metavar="QUEUE", nargs="*", help="only these queues (all)")
@argument("--accept", action="append", default=[], metavar="NAME", help="leave out this finding (repeatable)")
@flag("role", " whose rights are checked (that of the user's name)", choices=[*ROLES])
@flag("user", " whose rights are checked (this one)")
@flag("durability", ", which is checked for")
@flag("router")
def run(args: Args, shell: Shell) -> int:
    """Ask the server, judge, print."""
    checked_names(args.accept)
    level = Durability.parse(args.durability)
    with (
        address_of(shell.url) as url,
        driver_for(url) as driver,
        nodes_of(url, driver, shell.timeout) as nodes,
    ):
        examined = _examined(driver, nodes, level, args, url, shell.timeout)
    found = not_accepted(examined.findings, args.accept)
    left_out = len(examined.findings) - len(found)
    shell.show(
        "\n".join(_text(examined, found, left_out, level, shell.url)), _fields(examined, found, level, shell.url)
    )
    return FAILED if found else OK


def _examined(
    driver: Driver, nodes: Sequence[NodeRow], level: Durability, args: Args, url: str, timeout: float
) -> Examined:
    clock = SystemClock()
    examined = Examined(driver.run(server_facts(clock, timeout)), driver.run(health(clock, timeout)))
    examined.findings += of_server(level, examined.facts, examined.health)
    _note_unsaid(examined)
    _look_at_bindings(examined, driver, args.router, timeout)
    _look_at_queues(examined, args.queues, url, timeout, [each.name for each in nodes])
    _look_at_libraries(examined, nodes, timeout)  # the calls before may have loaded this version's
    _look_at_rights(examined, driver, args, timeout)
    return examined


def _note_unsaid(examined: Examined) -> None:
    """Say what the server did not tell."""
    for name, told in (("clock", examined.health.offset), ("memory", examined.health.memory)):
        if told is None:
            examined.unchecked[name] = "this user may not ask"
    if has_lua_fixes(examined.facts) is None and examined.health.lua_is_open is None:
        examined.unchecked["lua-fixes"] = "the server says no version"


def _look_at_libraries(examined: Examined, nodes: Sequence[NodeRow], timeout: float) -> None:
    own, others = scripts.library().name, {}
    for node in nodes:
        try:
            examined.libraries[node.name] = _library(node.driver, timeout)
        except BackendTimeout:
            if len(nodes) == 1:
                raise
            examined.unchecked[f"library {node.name}"] = "this node does not answer"
            continue
        try:
            found = node.driver.run(loaded_libraries(SystemClock(), timeout))
        except BackendTimeout:
            raise
        except BackendError:
            examined.unchecked["libraries"] = "this user may not list them"
            continue
        others[node.name] = [each.name for each in found if each.name != own]
    examined.findings += of_libraries(others)


def _library(driver: Driver, timeout: float) -> str:
    """How calls run on the node of *driver*."""
    own, clock = scripts.library(), SystemClock()
    if driver.run(runs_library(clock, timeout)):
        return own.name
    refused = driver.run(why_no_library(clock, timeout))
    if refused is None:
        return f"{own.name}, which the first call will load"
    return (
        f"scripts are used instead of functions, until `shardq server lua load` has loaded {own.name}: {refused.text}"
    )


def _look_at_bindings(examined: Examined, driver: Driver, router: str, timeout: float) -> None:
    try:
        found = driver.run(bound_queues(RouterState(RouterKeys(router), SystemClock(), timeout), None))
    except BackendTimeout:
        raise
    except BackendError:
        examined.unchecked["bindings"] = "this user may not read them"
        return
    gone = [each.queue for each in found if each.gone]
    examined.bindings = len(found)
    examined.findings += of_bindings(router, len(gone), [*dict.fromkeys(gone)])


def _look_at_queues(examined: Examined, named: Sequence[str], url: str, timeout: float, nodes: Sequence[str]) -> None:
    """Look at each queue, unless no client would use this server."""
    if any(each.is_fatal for each in examined.findings):
        examined.unchecked["queues"] = "no client uses such a server"
        return
    from shardq.client import Client

    with Client.from_url(url, timeout=timeout) as client:
        names = named or allowed(client.queues)
        if names is None:
            examined.unchecked["queues"] = "this user may not list them: name them"
            return
        examined.queues = len(names)
        for name in names:
            examined.findings += _of_queue(client, name, nodes, examined.unchecked)


def _of_queue(client: Client, name: str, nodes: Sequence[str], unchecked: dict[str, str]) -> Iterator[Finding]:
    queue = client.queue(name, create=False)
    if away := _away(client, queue):
        yield from of_silent(name, away)
        unchecked[f"queue {name}"] = "not all of it answers"
        return
    parts = allowed(queue.partitions)
    if parts is None:
        unchecked[f"partitions of {name}"] = "this user may not look at them"
    yield from of_partitions(name, parts or (), nodes)
    if any(each.is_gone for each in parts or ()):
        unchecked[f"queue {name}"] = "not all of it is there"
        return
    stats = allowed(queue.stats)
    if stats is None:
        unchecked[f"queue {name}"] = "this user may not look at it"
        return
    verdict = allowed(queue.verdict)
    if verdict is None:
        unchecked[f"readers of {name}"] = "this user may not look at them"
    elif is_unread(queue, verdict):
        yield from of_reading(name, verdict, stats.backlog)
    yield from of_leases(name, stats.expired, max(stats.delivered, stats.written))
    pauses = [Pause(None, stats.paused_since, stats.paused_until, stats.paused_by, stats.paused_note)]
    controls = allowed(queue.controls)
    if controls is None:
        unchecked[f"pauses of tenants of {name}"] = "this user may not look at them"
    else:
        paused = ((key, each) for key, each in controls.paused.items() if key is not None)
        pauses += [Pause(key, each.since, each.until, each.by, each.note) for key, each in paused]
    yield from of_pauses(name, pauses, stats.time)


def _away(client: Client, queue: Queue) -> list[int]:
    """The partitions of a queue that do not answer; none where this user may not look at them."""
    state = queue.state
    seen = allowed(lambda: client.run(sight(state, state.until())))
    found = PartitionMap.parse(map_of(seen.view.config.partitions)) if seen is not None else PartitionMap()
    if found.read == 1:
        return []
    states = [client.state_of_part(state, number, found.name_of(queue.name, number)) for number in range(found.read)]
    return client.run(silent(states, state.until()))


def _look_at_rights(examined: Examined, driver: Driver, args: Args, timeout: float) -> None:
    clock = SystemClock()
    user = args.user or driver.run(user_name(clock, timeout))
    examined.user = user
    role = args.role or (user if user in ROLES else None)
    if user is None:
        examined.unchecked["rights"] = "this user may not ask for its name: ask by another, with --user and --role"
    elif role is None:
        examined.unchecked["rights"] = f"--role says what user {user} is for"
    elif ROLES[role].verbs and not args.queues:
        examined.unchecked["rights"] = f"name the queues that user {user} is for"
    else:
        for queue in args.queues or ["any"]:
            lacks = driver.run(lacking(user, ROLES[role], queue, args.router, clock, timeout))
            if lacks is None:
                examined.unchecked["rights"] = (
                    "this user may not ask ACL DRYRUN: ask by another, with --user and --role"
                )
                return
            examined.findings += of_rights(user, role, queue, lacks)


def _text(examined: Examined, found: Sequence[Finding], left_out: int, level: Durability, url: str) -> Iterator[str]:
    where = f"{examined.facts} at {shown_url(url)}"
    accepted = f", {left_out:,} accepted" if left_out else ""
    begins = (
        f"{plural(len(found), 'finding')}{accepted}: {where}" if found else f"Nothing found{accepted}: {where} is well"
    )
    yield from wrapped(f"{begins}.")
    yield from lines(found)
    yield ""
    yield from listing([*_rows(examined, level)])


def _rows(examined: Examined, level: Durability) -> Iterator[tuple[str, str]]:
    """The facts that were looked at, and those that could not be."""
    facts, now = examined.facts, examined.health
    yield "shardq", shardq.__version__
    yield "round trip", f"{now.round_trip * 1e6:,.0f} µs (median of {PINGS})"
    yield (
        "append-only file",
        _or_unknown(facts.aof, {True: f"on, fsync {facts.appendfsync or 'unknown'}", False: "off"}),
    )
    limit = {0: ", no limit", None: ", limit unknown"}.get(now.maxmemory) or f" of {size(now.maxmemory or 0)}"
    used = "unknown" if now.memory is None else size(now.memory)
    yield "memory", f"{used}{limit}, maxmemory-policy {facts.policy or 'unknown'}"
    if now.offset is not None:
        apart = "ahead of" if now.offset > 0 else "behind"
        same = abs(now.offset) <= max(now.exact, SAME_CLOCK)
        yield "clock", "as this machine's" if same else f"{span(abs(now.offset))} {apart} this machine's"
    yield "Lua", _lua(examined)
    yield "replicas", _or_unknown(facts.replicas, {})
    yield "durability", str(level)
    yield "bindings", "unknown" if examined.bindings is None else number(examined.bindings)
    yield "queues", "unknown" if examined.queues is None else number(examined.queues)
    yield "user", examined.user or "unknown"
    for node, told in examined.libraries.items():
        yield f"library {node}".strip(), told
    for name, why in examined.unchecked.items():
        yield "not checked", f"{name}: {why}"


def _lua(examined: Examined) -> str:
    if examined.health.lua_is_open is not None:
        return f"{'lacks' if examined.health.lua_is_open else 'has'} the fixes of October 2025, as a script sees"
    told = {True: "has", False: "lacks", None: "nobody knows whether it has"}[has_lua_fixes(examined.facts)]
    return f"{told} the fixes of October 2025, by its version"


def _or_unknown(value: Any, names: dict[Any, str]) -> str:
    return "unknown" if value is None else names.get(value, str(value))


def _fields(examined: Examined, found: Sequence[Finding], level: Durability, url: str) -> dict[str, Any]:
    facts, now = examined.facts, examined.health
    return {
        "url": shown_url(url),
        "server": facts.server,
        "version": ".".join(map(str, facts.version or ())),
        "shardq": shardq.__version__,
        "round_trip": now.round_trip,
        "aof": facts.aof,
        "appendfsync": facts.appendfsync,
        "replicas": facts.replicas,
        "memory": now.memory,
        "maxmemory": facts.maxmemory,
        "policy": facts.policy,
        "clock_offset": now.offset,
        "lua_fixes": has_lua_fixes(facts) if now.lua_is_open is None else not now.lua_is_open,
        "durability": str(level),
        "libraries": examined.libraries,
        "bindings": examined.bindings,
        "queues": examined.queues,
        "user": examined.user,
        "unchecked": examined.unchecked,
        "findings": [
            {"name": each.name, "queue": each.queue, "line": each.line, "mend": each.mend, "fatal": each.is_fatal}
            for each in found
        ],
    }
