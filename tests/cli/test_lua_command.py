"""`shardq server lua`, and what `shardq server doctor` says of libraries."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from shardq.protocol import records, scripts
from shardq.protocol.library import Library
from shardq.protocol.sources import MARK
from tests.cli.conftest import Command
from tests.conformance.drivers.libraries import library, loaded
from tests.servers import Cluster, Server

LUA = scripts.root()


@pytest.fixture
def foreign(tmp_path: Path, cli_server: Server) -> Library:
    """The library of another version, which the server has."""
    cli_server.run("FUNCTION", "FLUSH")
    found = library(tmp_path / "other")
    cli_server.run("FUNCTION", "LOAD", found.text)
    return found


def bare(line: str) -> str:
    """A line without constants, their values, and functions of modules, which have other names in Redis."""
    return re.sub(r"\b[A-Z]\w*(?:\.\w+)?|'[^']*'|\d+", "", line)


def test_what_redis_runs_for_a_verb_is_printed_with_the_place_of_each_line(cli: Command) -> None:
    told = cli("server", "lua", "read", "--json")
    assert told.code == 0
    assert "".join(f"{each['text']}\n" for each in told.objects) == scripts.load("read").source
    named = [each for each in told.objects if each["file"]]
    assert {each["file"] for each in named} == {path.name for path in LUA.glob("*.lua")}
    fields = records.read((LUA / "base.lua").read_text().splitlines())
    for each in named:
        there = (LUA / each["file"]).read_text().split("\n")[each["line"] - 1]
        assert "new_" in there or MARK in there or bare(each["text"]) == bare(records.numbered(fields, there.rstrip()))
    assert re.search(
        r"^read\.lua:\d+ +function verbs\.read\(KEYS, ARGV\)$", cli("server", "lua", "read").out, re.MULTILINE
    )
    assert cli("server", "lua", "nothing").code == 2


def test_libraries_are_listed_and_those_of_other_versions_removed(
    cli: Command, cli_server: Server, foreign: Library
) -> None:
    cli_server.run("FUNCTION", "LOAD", foreign.text.replace(foreign.name, "somebodys"))
    [listed] = cli("server", "lua", "list", "--json").objects
    assert listed == {"node": "", "library": foreign.name, "functions": len(foreign.verbs), "own": False}
    assert foreign.name in cli("server", "lua", "list").out
    assert cli.terminal("server", "lua", "clean", typed="n\n").code == 1
    assert cli("server", "lua", "clean").code == 2
    assert loaded(cli_server) == {foreign.name, "somebodys"}
    assert cli("server", "lua", "clean", "--yes").out == f"removed {foreign.name}\n"
    assert loaded(cli_server) == {"somebodys"}
    assert cli("server", "lua", "clean", "--yes").code == 3
    cli_server.run("FUNCTION", "FLUSH")


def test_libraries_of_all_nodes_of_a_cluster_are_seen(cluster: Cluster, foreign: Library) -> None:
    for node in cluster.nodes:
        node.run("FUNCTION", "FLUSH")
        node.run("FUNCTION", "LOAD", foreign.text)
    command = Command(cluster.url)
    names = {f"127.0.0.1:{node.port}" for node in cluster.nodes}
    assert {each["node"] for each in command("server", "lua", "list", "--json").objects} == names
    assert {each["node"] for each in command("server", "lua", "clean", "--yes", "--json").objects} == names
    assert [loaded(node) for node in cluster.nodes] == [set()] * 3


def test_doctor_says_which_library_runs(cli: Command, cli_server: Server) -> None:
    own = scripts.library().name
    cli_server.run("FUNCTION", "FLUSH")
    assert cli("server", "doctor", "--json").objects[0]["libraries"] == {"": own}  # its own calls have loaded it
    assert re.search(rf"^library +{own}$", cli("server", "doctor").out, re.MULTILINE)
