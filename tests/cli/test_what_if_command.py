"""`shardq what-if`: a folder of jobs in, a table of settings out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardq import Client
from tests.cli.conftest import Command


@pytest.fixture
def folder(cli: Command, tmp_path: Path) -> str:
    """The jobs of two tenants, made by `shardq jobs`. No worker was there."""
    with Client.from_url(cli.url) as client:
        queue = client.queue("mails", journal=1_000)
        for tenant in ("a", "a", "b"):
            queue.write("x", shard_key=tenant)
        for delivery in queue.read_many(3):
            delivery.ack()
        other = client.queue("other", journal=1_000)
        other.write("x", shard_key="a")
    made = tmp_path / "made"
    assert cli("jobs", "mails", "--out", str(made)).code == 0
    return str(made)


def test_settings_stand_beside_what_was(cli: Command, folder: str) -> None:
    told = cli("what-if", folder, "--workers", "1,2", "--weight", "a=3", "--within", "5s")
    assert told.code == 0, told.err
    verdict, table = told.out.split("\n\n")
    assert " ".join(verdict.split()).startswith(
        "1 workers, weight a=3 keeps the objective, 99% of the jobs within 5.0 s: 100.0% in time"
    )
    header, was, *others = table.splitlines()
    assert (header.split()[0], was[:9]) == ("setting", "as it was")
    assert [each.split()[0] for each in others if each[0].isdigit()] == ["1", "2"]
    assert max(map(len, told.out.splitlines())) <= 80
    assert "3 jobs" in told.err


def test_json_has_a_line_for_each(cli: Command, folder: str) -> None:
    told = cli("what-if", folder, "--workers", "2", "--json")
    was, two = map(json.loads, told.out.splitlines())
    assert (was["queue"], was["name"], two["name"]) == ("mails", "as it was", "2 workers")
    assert (two["all"]["jobs"], two["never"], two["in_time"]) == (3, 0, 1.0)


def test_a_file_has_alternatives_and_a_picture_shows_them(cli: Command, folder: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    tries, picture = tmp_path / "tries.toml", tmp_path / "waits.svg"
    tries.write_text("[more]\nworkers = 2\n")
    told = cli("what-if", folder, "--alternatives", str(tries), "--plot", str(picture))
    assert (told.code, "more" in told.out) == (0, True)
    assert "slot hours" in picture.read_text()
    bad = cli("what-if", folder, "--workers", "1", "--plot", str(tmp_path / "waits.gif"))
    assert (bad.code, "gif" in bad.err, "jobs" in bad.err) == (2, True, False)  # it is said before a replay


def test_what_is_wrong_is_said(cli: Command, folder: str, tmp_path: Path) -> None:
    for words, code, said in (
        ([folder], 2, "--workers"),
        ([folder, "--weight", "a=3"], 2, "must say how many"),
        ([folder, "--workers", "0"], 2, "at least 1"),
        ([folder, "--workers", "1", "--weight", "a=0"], 2, "weight"),
        ([folder, "--workers", "1", "--setting", "colour=3"], 2, "colour"),
        ([folder, "--workers", "1", "--setting", "max_len=3"], 2, "max_len"),
        ([folder, "--workers", "1", "--limits", "a=rate=many"], 2, "rate"),
        ([folder, "--workers", "1", "--objective", "101"], 2, "--objective"),
        ([folder, "--workers", "1", "--queue", "nowhere"], 3, "nowhere"),
        ([folder, "--workers", "1", "--before", "2001-01-01"], 3, "no job"),
        ([str(tmp_path), "--workers", "1"], 2, "shardq jobs makes them"),
        ([str(tmp_path / "nowhere"), "--workers", "1"], 2, "shardq jobs makes them"),
    ):
        told = cli("what-if", *words)
        assert (told.code, told.out, said in told.err) == (code, "", True), (words, told)
