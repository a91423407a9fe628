"""`shardq server acl`, and `shardq server doctor` as each role."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from shardq import Queue
from shardq.protocol.roles import ROLES
from tests.acl import Users
from tests.cli.conftest import Command
from tests.servers import Server

OPTIONS = [
    *("--router", "r", "--also", "cancel", "--durability", "replica(2)", "--legacy-stream", "{jobs}old"),
    *("--cluster", "--database", "--partitioned"),
]


@pytest.fixture
def users(cli_server: Server, queue: Queue) -> Iterator[Users]:
    users = Users(cli_server)
    yield users
    users.remove()


@pytest.mark.parametrize("role", ROLES)
def test_a_server_accepts_what_it_prints(cli: Command, cli_server: Server, role: str) -> None:
    for options in ([], OPTIONS):
        told = cli("server", "acl", role, "jobs", "other", "--user", "somebody", "--setuser", *options)
        assert (told.code, told.err) == (0, "")
        assert cli_server.run(*told.out.split()) in (b"OK", True, "OK")
        cli_server.run("ACL", "DELUSER", "somebody")


def test_without_scripts_it_prints_no_right_to_run_any(cli: Command) -> None:
    for role in ROLES:
        assert "+eval" not in cli("server", "acl", role, "jobs", "--no-eval").out
    assert "+evalsha" in cli("server", "acl", "producer", "jobs").out


def test_it_asks_no_server_and_prints_no_password(cli: Command, cli_server: Server, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("open sesame\n")
    told = cli("server", "acl", "producer", "jobs", "--password-file", str(file), "--url", "redis://127.0.0.1:1")
    assert told.out.startswith("user producer on #")
    assert "sesame" not in told.out + told.err
    assert cli("server", "acl", "producer", "jobs", "--password-file", "-", stdin=b"open sesame").out == told.out
    cli_server.run("ACL", "SETUSER", *told.out.split()[1:])
    with cli_server.client(username="producer", password="open sesame") as client:
        assert client.ping()
    with cli_server.client(username="producer", password="sesame") as client, pytest.raises(redis.AuthenticationError):
        client.ping()
    cli_server.run("ACL", "DELUSER", "producer")
    assert " >PASSWORD " in cli("server", "acl", "producer", "jobs").out


@pytest.mark.parametrize(
    "words",
    [
        [], ["producer"], ["nobody", "jobs"], ["producer", "*"], ["producer", "jobs", "--also", "nothing"],
        ["producer", "jobs", "--router", "a b"], ["producer", "jobs", "--user", "a b"],
        ["producer", "jobs", "--durability", "most"], ["producer", "jobs", "--password-file", "-"],
        *(["consumer", "jobs", "--legacy-stream", key] for key in ("a b", "a)", "(a", "*", "a?", "[a]", "a\\", "")),
    ],
)  # fmt: skip
def test_what_makes_no_user_is_refused(cli: Command, words: list[str]) -> None:
    told = cli("server", "acl", *words)
    assert (told.code, told.out) == (2, ""), told


def test_the_roles_are_listed(cli: Command) -> None:
    assert all(name in cli("server", "acl", "--roles").out for name in ROLES)
    assert [each["role"] for each in cli("server", "acl", "--roles", "--json").objects] == [*ROLES]
    (made,) = cli("server", "acl", "loader", "--json").objects
    assert (made["user"], made["rules"][:2]) == ("loader", ["on", ">PASSWORD"])


@pytest.mark.parametrize("role", ROLES)
def test_the_doctor_comes_as_each_role(cli: Command, users: Users, role: str) -> None:
    """It says what it may not ask, and finds no fault with that."""
    words = ("server", "doctor", "jobs", "--accept", "append-only-file", "--accept", "libraries")
    told = cli(*words, "--url", users.url(role))
    assert (told.code, told.err) == (0, ""), told
    assert told.out.startswith("Nothing found, 1 accepted: ")
    asked = cli(*words, "--json", "--durability", "disk", "--url", users.url(role)).objects[0]
    assert ("does not say" not in str(asked["findings"])) == (role == "doctor")
    assert ("rights" not in asked["unchecked"]) == (role == "doctor")


def test_only_a_loader_loads_the_library(cli: Command, cli_server: Server, users: Users) -> None:
    cli_server.run("FUNCTION", "FLUSH")
    assert cli("server", "lua", "load", "--url", users.url("operator")).code == 1
    (loaded,) = cli("server", "lua", "load", "--json", "--url", users.url("loader")).objects
    assert loaded["loaded"]
    assert "was loaded already" in cli("server", "lua", "load", "--url", users.url("loader")).out
    (told,) = cli("server", "doctor", "--json", "--url", users.url("producer")).objects
    assert told["libraries"] == {"": loaded["library"]}
    cli_server.run("FUNCTION", "FLUSH")
    (told,) = cli("server", "doctor", "--json", "--url", users.url("producer")).objects
    assert "until `shardq server lua load`" in told["libraries"][""]
