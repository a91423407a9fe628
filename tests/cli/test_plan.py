"""`shardq server size`: needs no server, prints, draws, checks, deals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from shardq.cli.program import main
from shardq.planner import plan, simulation
from shardq.sharding import overlap, shard


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["server", "size", "--url", "redis://nowhere.invalid:1", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_it_prints_the_plan_and_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = plan(1000, 4, 0.99)
    code, out, _ = told(capsys, "--tenants", "1000", "--noisy", "4")
    assert code == 0
    marked = [line.split() for line in out.splitlines() if line.endswith("<-")]
    assert [line[:2] for line in marked] == [[str(chosen.streams), str(chosen.streams_per_shard)]]
    assert f"chosen            {chosen.streams} streams, {chosen.streams_per_shard} per shard" in out
    assert [line for line in out.splitlines() if len(line) > 120] == []


def test_it_tells_programs_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = told(capsys, "--tenants", "1000", "--noisy", "4", "--json")
    chosen, found = plan(1000, 4, 0.99), json.loads(out)
    assert (found["streams"], found["streams_per_shard"]) == (chosen.streams, chosen.streams_per_shard)
    assert found["isolation"] == pytest.approx(chosen.isolation)
    assert sum(found["clean"]) == pytest.approx(1)
    assert found["noisy_tenants"]["2"] == pytest.approx(chosen.beside(2))
    assert found["cost"]["memory"] == chosen.cost.memory
    assert found["streams"] in [each["streams"] for each in found["frontier"]]


def test_it_looks_at_given_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = told(capsys, "--streams", "64", "--per-shard", "4", "--noisy", "20", "--json")
    assert json.loads(out)["clean"][0] == pytest.approx(0.271, abs=0.001)


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_it_draws(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file of the kind that its name says, the same for the same plan."""
    files = [tmp_path / f"{name}.{suffix}" for name in ("one", "two")]
    for file in files:
        assert told(capsys, "--noisy", "2", "--plot", str(file))[0] == 0
    one, two = (file.read_bytes() for file in files)
    assert one == two
    if suffix == "svg":
        assert ElementTree.fromstring(one).tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 (our own)
    else:
        assert one.startswith(b"\x89PNG")


@pytest.mark.runs_in("test-all")
def test_it_checks_the_odds(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = told(capsys, "--streams", "16", "--per-shard", "2", "--noisy", "4", "--check", "--seed", "1")
    assert code == 0
    assert out.count("agrees") == 4
    assert "1,000,000 random tenants" in out


def test_odds_that_disagree_fail_the_check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 1 when one of the checks disagrees."""
    monkeypatch.setattr(simulation, "dealt", lambda n, m, seed: [simulation.Closeness("dealt", (1,), (9.0,), 8.0)])
    code, out, _ = told(capsys, "--streams", "16", "--per-shard", "2", "--check")
    assert code == 1
    assert "check: dealt: DISAGREES, +8.00 deviations" in out


def test_it_gives_names_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line per name, any two with at most so many streams in common; who comes later moves nobody."""
    names = tmp_path / "names"
    names.write_text("acct-1\nacct 2\n\n\u00fcber\n")
    asked = ("--names", str(names), "--streams", "16", "--per-shard", "4", "--max-overlap", "0")
    _, out, _ = told(capsys, *asked)
    shards = dict(line.split("\t") for line in out.splitlines())
    assert list(shards) == ["acct-1", "acct 2", "\u00fcber"]
    assert shards["acct-1"] == ",".join(map(str, shard("acct-1", 16, 4)))
    names.write_text(names.read_text() + "one-more\n")
    _, out, _ = told(capsys, *asked, "--json")
    objects = [json.loads(line) for line in out.splitlines()]
    assert {each["shard_key"]: ",".join(map(str, each["shard"])) for each in objects[:3]} == shards
    assert max(overlap(a["shard"], b["shard"]) for a in objects for b in objects if a is not b) == 0
    names.write_text("\n".join(f"acct-{number}" for number in range(5)))
    code, out, err = told(capsys, *asked)
    assert (code, out) == (2, "")
    assert "no room for tenant 5 in 16 streams" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--streams", "64"), "--streams needs --per-shard"),
        (("--names", "x"), "--names needs --streams"),
        (("--plot", "plan.gif"), "--plot writes .png or .svg, not 'plan.gif'"),
        (("--isolation", "1"), "isolation must be a share between 0 and 1"),
        (("--noisy", "3000"), "plan for fewer noisy tenants"),
        (("--tenants", "5"), "noisy must be an int from 1 to 5, not 20"),
        (("--at-most", "9999"), "most must be an int from 1 to 4,096"),
    ],
)
def test_it_says_what_is_wrong(words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = told(capsys, *words)
    assert code == 2
    assert message in err


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize(("option", "package"), [("--check", "numpy"), ("--plot=x.svg", "matplotlib")])
def test_a_missing_package_is_named(option: str, package: str) -> None:
    """Without the extra, the plan is printed and the error says what to install."""
    code = "import sys; sys.modules[sys.argv[1]] = None; from shardq.cli import main; sys.exit(main(sys.argv[2:]))"
    ended = subprocess.run(
        [sys.executable, "-c", code, package, "server", "size", option], capture_output=True, text=True
    )
    assert ended.returncode == 2
    assert f"needs the extra plan: pip install 'shardq[plan]' ({package} is missing)" in ended.stderr
