"""`shardq server doctor`: each finding, seen on a server that has it or judged from what such a server says."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from shardq import Client, OutOfMemory, Queue
from shardq.cli.exits import UsageError
from shardq.cli.findings.finding import NAMES, checked_names, lines, not_accepted
from shardq.cli.findings.health import Health
from shardq.cli.findings.of_rights import of_rights
from shardq.cli.findings.of_server import of_bindings, of_libraries, of_server
from shardq.cli.findings.rights import WORDS, Lacks, lacking, needs
from shardq.cli.width import width
from shardq.clock import SystemClock
from shardq.durability import Durability, ServerFacts
from shardq.model.verdict import Verdict
from shardq.ops.queue.steps import Op
from shardq.outlook.findings import Finding, Pause, of_leases, of_pauses, of_reading, of_silent
from shardq.protocol.roles import ROLES, rules
from tests.cli.conftest import Command
from tests.cli.test_text import obeyed
from tests.servers import Server, ServerKind
from tests.surface import differences

ACCEPTED = ("--accept", "append-only-file", "--accept", "libraries")
"""What the server of these tests has: no file, and what other tests loaded."""
NONE = Durability.parse("none")
WELL = ServerFacts("redis", (8, 2, 2), True, "everysec", False, 0, 0, 0, "noeviction")
HEALTH = Health(0.001, 0.0, 0.0005, 0.0, 1_000, 0, 10**9, 0, 3, 10_000, False, (), False)
NOW = 1_795_833_060.0


def names(level: Durability = NONE, facts: ServerFacts = WELL, health: Health = HEALTH) -> list[str]:
    return [each.name for each in of_server(level, facts, health)]


def ill(**known: Any) -> Health:
    return msgspec.structs.replace(HEALTH, **known)


def test_a_server_that_is_well_has_no_finding() -> None:
    assert names() == []
    assert names(health=Health(0.001)) == [], "what nobody says is no finding"


@pytest.mark.parametrize(
    ("facts", "health", "name"),
    [
        ({"aof": False}, {}, "append-only-file"),
        ({"maxmemory": 100, "policy": "allkeys-lru"}, {}, "eviction"),
        ({"maxmemory": 0, "policy": "allkeys-lru"}, {}, "eviction"),
        ({"policy": None}, {}, "eviction"),
        ({"version": (6, 2, 1)}, {"lua_is_open": None}, "version"),
        ({"server": "keydb"}, {}, "version"),
        ({}, {"refused": 1}, "memory"),
        ({}, {"memory": 91, "maxmemory": 100}, "memory"),
        ({}, {"memory": 91, "maxmemory": 0, "machine_memory": 100}, "memory"),
        ({}, {"clients": 9_000}, "clients"),
        ({}, {"offset": 4.2}, "clock"),
        ({}, {"offset": -4.2}, "clock"),
        ({}, {"jumped": 0.5}, "clock"),
        ({}, {"failed_files": ("a snapshot",)}, "persistence"),
        ({}, {"is_replica": True}, "replica"),
        ({}, {"lua_is_open": True}, "lua-fixes"),
        ({"version": (8, 2, 1)}, {"lua_is_open": None}, "lua-fixes"),
    ],
)
def test_what_breaks_queues_is_found(facts: dict[str, Any], health: dict[str, Any], name: str) -> None:
    found = [*of_server(NONE, msgspec.structs.replace(WELL, **facts), ill(**health))]
    assert {each.name for each in found} - {"lua-fixes"} | {name} == {name}
    assert name in {each.name for each in found}
    assert all(each.mend.endswith(".") for each in found)


@pytest.mark.parametrize(
    "health",
    [
        {"memory": 89, "maxmemory": 100},
        {"memory": 10**12, "maxmemory": None, "machine_memory": None},
        {"clients": 8_999},
        {"offset": 0.9},
        {"offset": 2.0, "exact": 1.5},
        {"jumped": 0.01},
        {"lua_is_open": False},
    ],
)
def test_what_is_near_or_uncertain_is_not(health: dict[str, Any]) -> None:
    assert names(health=ill(**health)) == []


def test_a_script_knows_better_than_the_version_whether_lua_has_its_fixes() -> None:
    """Distributions backport fixes and keep the number."""
    old = msgspec.structs.replace(WELL, version=(7, 0, 15))
    assert names(facts=old, health=ill(lua_is_open=False)) == []
    (found,) = of_server(NONE, old, ill(lua_is_open=None))
    assert "backported" in found.mend


@pytest.mark.parametrize("level", ["process", "disk", "replica(2)"])
def test_durability_is_judged_as_clients_judge_it(level: str) -> None:
    worst = msgspec.structs.replace(WELL, aof=False, appendfsync="no", rewrite_pauses_fsync=True)
    found = set(names(Durability.parse(level), worst))
    assert found == {"append-only-file"} | {"disk": {"fsync"}, "replica(2)": {"replicas"}}.get(level, set())
    unsaid = set(names(Durability.parse(level), ServerFacts("redis", (8, 2, 2), policy="noeviction")))
    assert unsaid == found


def test_leases_that_end_by_time_again_and_again_are_found() -> None:
    assert [each.name for each in of_leases("jobs", 200, 1_000)] == ["leases"]
    assert [*of_leases("jobs", 20, 20)] == [], "a worker that died once"
    assert [*of_leases("jobs", 200, 100_000)] == [], "2 in 1,000"


def test_what_was_paused_and_forgotten_is_found() -> None:
    day = 86_400.0
    old = Pause(None, NOW - 3 * day, math.inf, "jonas", "until the bank answers")
    (found,) = of_pauses("invoices", [old], NOW)
    assert re.fullmatch(r"jonas paused it \w+day \d\d:\d\d, without an end\.", found.line)
    assert "“until the bank answers”, says the pause" in found.mend
    assert [*of_pauses("q", [old._replace(since=NOW - 3_600)], NOW)] == []
    assert [*of_pauses("q", [old._replace(until=NOW + 60)], NOW)] == []
    assert [*of_pauses("q", [old._replace(since=None)], NOW)] == []
    assert [*of_pauses("q", [old._replace(until=None)], NOW)] == []
    (found,) = of_pauses("q", [Pause(f"t{n}", NOW - 2 * day, math.inf, "mia") for n in range(9)], NOW)
    assert found.line.startswith("9 tenants paused without an end, the first ")
    assert "t0, t1, t2 and 6 more" in found.mend


def test_a_backlog_without_a_worker_is_found_in_the_words_of_the_verdict() -> None:
    told = Verdict("exports", NOW, "no_worker", "bad", "exports has no worker since 02:09: 420 messages wait.")
    (found,) = of_reading("exports", told, 420)
    assert (found.label, found.line) == ("no-worker:exports", told.sentence)
    (found,) = of_reading("exports", msgspec.structs.replace(told, kind="redis_full"), 420)
    assert found.line == "no worker: 420 messages in the backlog."


def every_finding(name: str) -> Iterator[Finding]:
    """Each that there is, with this name wherever somebody may choose one."""
    worst = msgspec.structs.replace(WELL, aof=False, policy="allkeys-lru", maxmemory=5, version=(6, 0, 1))
    sick = Health(0.1, 1e9, 0.0, 1e9, 99, 100, 100, 10**12, 10**6, 10**6, True, ("the file anew", "a snapshot"), True)
    for level in ("none", "process", "disk", "replica(99)"):
        yield from of_server(Durability.parse(level), worst, sick)
        yield from of_server(Durability.parse(level), ServerFacts(), sick)
        limitless = msgspec.structs.replace(worst, maxmemory=0, version=(8, 2, 1), min_replicas=0, appendfsync="no")
        yield from of_server(Durability.parse(level), limitless, ill(memory=99, machine_memory=100, offset=-9e9))
    yield from of_libraries({"a": ["shardq_1", "shardq_2"], "b": ["shardq_3"]})
    yield from of_bindings("default", 10**6, ["q" * 90] * 99)
    yield from of_rights(name, "scheduler", "jobs", [Lacks("zrangebyscore", "schedule_due")] * 99)
    yield from of_leases("jobs", 10**12, 10**12)
    told = Verdict("jobs", NOW, "no_worker", "bad", f"{name} has no worker: 10 messages wait.")
    yield from of_reading("jobs", told, 10)
    yield from of_silent("jobs", range(64))
    yield from of_pauses("jobs", [Pause(None, 1.0, math.inf, name, name), Pause(name, 1.0, math.inf, name, name)], NOW)


@pytest.mark.parametrize("name", ["plain", "x" * 10_000, "株式会社" * 99, "\x1b[2J\n\u202e", "-y"], ids=range(5))
def test_each_finding_is_one_line_of_80_columns_with_what_to_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for each in every_finding(name):
        told = lines([each])
        assert max(map(width, told)) <= 80, told
        assert obeyed("".join(told)) == []
        assert told[0].startswith(each.name)
        assert name != "plain" or not told[0].endswith("…"), told
        assert all(line.startswith("    ") for line in told[1:])
        assert 1 < len(told) < 12


def test_each_name_that_can_be_accepted_is_of_a_finding() -> None:
    assert differences({each.name for each in every_finding("plain")}, NAMES) == []


def test_what_the_team_accepts_is_left_out() -> None:
    paused, other = Finding("paused", "x", "y", "invoices"), Finding("paused", "x", "y", "mails")
    assert not_accepted([paused, other], ["paused:invoices"]) == [other]
    assert not_accepted([paused, other], ["paused"]) == []
    assert not_accepted([Finding("eviction", "x", "y", is_fatal=True)], ["eviction"]) != []
    with pytest.raises(UsageError, match="did you mean paused"):
        checked_names(["pausd"])


# On a server


def test_a_server_without_its_file_loses_what_was_acknowledged(cli: Command) -> None:
    told = cli("server", "doctor")
    assert told.code == 1
    assert "append-only-file: it is off: a restart loses what was acknowledged.\n    Set appendonly yes." in told.out
    told = cli("server", "doctor", *ACCEPTED)
    assert (told.code, told.out.partition(":")[0]) == (0, "Nothing found, 1 accepted")
    assert cli("server", "doctor", "--accept", "append-only").code == 2
    (said,) = cli("server", "doctor", "--json", "--durability", "disk").objects
    assert {"append-only-file", "fsync"} <= {each["name"] for each in said["findings"]}
    assert said["lua_fixes"] in (True, False)


def test_it_looks_at_a_server_that_clients_refuse(kind: ServerKind | None) -> None:
    with Server(kind, options={"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}) as server:
        told = Command(server.url)("server", "doctor", "--accept", "eviction")
    assert told.code == 1
    assert "eviction: acknowledged messages are evicted: maxmemory-policy allkeys-lru.\n" in told.out
    assert re.search(r"^not checked +queues: no client uses such a server$", told.out, re.MULTILINE)


def test_a_server_that_is_full_is_found_while_it_is_and_afterwards(kind: ServerKind | None) -> None:
    with Server(kind, options={"maxmemory": "6mb"}) as server, Client.from_url(server.url) as client:
        jobs = client.queue("jobs", streams=4)
        jobs.declare()
        with pytest.raises(OutOfMemory):
            fill(jobs)
        told = Command(server.url)("server", "doctor", *ACCEPTED)
        assert told.code == 1
        assert re.search(
            r"^memory: Redis was full: [\d,]+ commands? refused since it started\.$", told.out, re.MULTILINE
        )
        assert re.search(r"^no-worker:jobs: .*no worker", told.out, re.MULTILINE)
        assert re.search(r"^memory: Redis uses \d+ % of its maxmemory\.$", told.out, re.MULTILINE)


def fill(jobs: Queue) -> None:
    """Write until Redis is full."""
    while True:
        jobs.write(b"x" * 10_000, shard_key="t")


def test_a_queue_with_a_backlog_and_nobody_who_reads_is_found(cli: Command, queue: Queue) -> None:
    queue.write(b"x", shard_key="t")
    told = cli("server", "doctor", *ACCEPTED)
    assert told.code == 1
    assert re.search(r"^no-worker:jobs: jobs has no worker", told.out, re.MULTILINE)
    assert cli("server", "doctor", *ACCEPTED, "--accept", "no-worker:jobs").code == 0
    assert cli("server", "doctor", "nope").code == 3


def run(server: Server, op: Op[Any]) -> Any:
    with Client.from_url(server.url) as client:
        return client.run(op)


def lacks_of(server: Server, user: str, role: str) -> list[Lacks]:
    found: list[Lacks] = run(server, lacking(user, ROLES[role], "jobs", "default", SystemClock(), 5.0))
    return found


def test_each_command_of_a_role_can_be_asked_about(cli: Command, cli_server: Server) -> None:
    needed = {command for role in ROLES.values() for command, *_ in needs(role, "jobs", "default")}
    assert differences(WORDS, needed) == []
    for role in ROLES:
        assert lacks_of(cli_server, "default", role) == [], role


@pytest.mark.parametrize("role", ROLES)
def test_a_user_has_all_the_rights_of_its_role_or_it_is_told_which_it_lacks(
    cli: Command, cli_server: Server, role: str
) -> None:
    given = rules(ROLES[role], ["jobs"])
    cli_server.run("ACL", "SETUSER", role, "reset", "on", ">x", *given)
    try:
        assert lacks_of(cli_server, role, role) == []
        cli_server.run("ACL", "SETUSER", role, "reset", "on", ">x", *[each for each in given if "xadd" not in each])
        lacks = {each.command for each in lacks_of(cli_server, role, role)}
        assert ("xadd" in lacks) == any("xadd" in each for each in given)
        cli_server.run("ACL", "SETUSER", role, "reset", "on", ">x")
    finally:
        cli_server.run("ACL", "DELUSER", role)


def test_the_doctor_says_what_a_user_lacks_and_how_to_give_it(cli: Command, queue: Queue, cli_server: Server) -> None:
    cli_server.run("ACL", "SETUSER", "api", "reset", "on", ">x", *rules(ROLES["consumer"], ["other"]))
    try:
        told = cli("server", "doctor", "jobs", "--user", "api", "--role", "producer", *ACCEPTED)
        assert told.code == 1
        assert re.search(r"^rights:jobs: user api lacks \d+ rights of the role producer\.$", told.out, re.MULTILINE)
        assert "shardq server acl producer jobs --user api --setuser" in " ".join(told.out.split())
    finally:
        cli_server.run("ACL", "DELUSER", "api")


def test_who_may_not_ask_is_told_so(cli: Command, queue: Queue, cli_server: Server) -> None:
    cli_server.run("ACL", "SETUSER", "api", "reset", "on", ">x", *rules(ROLES["producer"], ["jobs"]))
    try:
        url = cli_server.url.replace("unix://", "unix://api:x@")
        (told,) = cli("server", "doctor", "jobs", "--json", "--url", url, *ACCEPTED).objects
        assert {"rights", "libraries", "bindings", "queue jobs"} <= told["unchecked"].keys()
    finally:
        cli_server.run("ACL", "DELUSER", "api")
