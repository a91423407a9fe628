"""What comes in by any door is taken, or answered with an error of shardq's own. It costs no memory and writes nothing.

Doors that need a server, or a process of their own, have tests of their own (ELSEWHERE).
"""

from __future__ import annotations

import contextlib
import random
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from shardq import ConfigError, ShardqError
from tests.conftest import Record
from tests.hostile.doors import Door, doors
from tests.hostile.fuzz import MAX_ERROR, Fuzz, Outcome, Started
from tests.house.doc_blocks import ROOT
from tests.selection import SOAK
from tests.surface import commands

INPUTS: Final = 1_000_000 if SOAK else 10_000
"""Of all doors together."""

PROCESSES: Final = 2 if SOAK else 1

MAX_GROWTH: Final = 16
"""MiB by which a process may grow once it is warm, however many inputs come."""

ELSEWHERE: Final[Mapping[str, str]] = {
    "the command line": "tests/cli/test_fuzz.py",
    "arguments of the client": "tests/hostile/test_entries.py",
    "requests to the gateway": "tests/gateway/test_fuzz.py",
    "calls of functions in Redis": "tests/fault/server/test_hostile_calls.py",
    "metrics and the scaler by HTTP": "tests/exporter/test_listener.py",
}

SERVED: Final[Mapping[str, str]] = {
    "serve dashboard": "dashboard",
    "serve gateway": "requests to the gateway",
    "serve metrics": "metrics and the scaler by HTTP",
    "serve scaler": "scaler",
}
"""The commands that listen, and their doors."""

DECODES: Final = re.compile(
    r"pq\.read_table|ds\.dataset|read_parquet|sqlite3\.connect|\.FromString\(|(?:json|msgpack)\.decode\("
    r"|json\.loads|(?<!def )\btoml\(|(?:json|msgpack)\.Decoder\("
)
"""What decodes bytes of others."""

PAYLOADS: Final = "payloads and results: a codec refuses them, and tests/unit/shardq/test_codec.py has what it refuses"
OURS: Final = "what this process wrote, or what came with it"
GATEWAYS: Final = "requests to the gateway"
OWN_FOLDER: Final = "the run's own folder, which tests/spark/pipelines damages"

APART: Final[Mapping[str, str]] = {
    "shardq.cli.commands.schedule": "the command line",
    "shardq.cli.commands.write": "the command line",
    "shardq.cli.edge.refused": "the spool's door has what it reads",
    "shardq.cli.edge.send": "the command line",
    "shardq.cli.gateway_status": "the answer of one's own gateway",
    "shardq.codec": PAYLOADS,
    "shardq.jobs.tables": "see tests/reports/test_foreign.py",
    "shardq.spark.tables": "the options of a table: tests/spark/test_sql.py",
    "shardq.datasink.batches": GATEWAYS,
    "shardq.datasink.messages": OURS,
    "shardq.django.record": PAYLOADS,
    "shardq.django.sent": PAYLOADS,
    "shardq.edge.answers": "answers of a gateway: tests/edge/test_damage.py has rubbish of them",
    "shardq.edge.delivering": "the spool's door has what it reads, and tests/edge/test_damage.py what is no request",
    "shardq.gateway.connection": GATEWAYS,
    "shardq.model.annotation": PAYLOADS,
    "shardq.ops.inspect.peek": "arguments of the client",
    "shardq.protocol.library": OURS,
    "shardq.spark.columns": PAYLOADS,
    "shardq.spark.consume.lease": OURS,
    "shardq.spark.lags": "what Spark tells of its own query",
    "shardq.spark.pipelines.checkpoint": OWN_FOLDER,
    "shardq.spark.pipelines.folder": OWN_FOLDER,
    "shardq.spark.pipelines.landing": OWN_FOLDER,
    "shardq.spark.shape": PAYLOADS,
    "shardq.tasks.finding": PAYLOADS,
    "shardq.tasks.signature": PAYLOADS,
    "shardq.telemetry.family": "what processes of one worker tell each other",
    "shardq.worker.children": "what processes of one worker tell each other",
}
"""Other modules that decode, and where what they read is tried, or why it is not from outside."""


@pytest.mark.once
@pytest.mark.runs_in("test-all", "soak")
@pytest.mark.timeout(7_200 if SOAK else 300)
def test_whatever_comes_in_is_taken_or_refused(quick_disk: Path, seed: int, record_property: Record) -> None:
    started = [Started(quick_disk / str(number), seed + number, INPUTS // PROCESSES) for number in range(PROCESSES)]
    for each in started:
        found = each.outcome()
        record_property(
            "note",
            f"fuzz: {found.taken:,} inputs taken, {found.refused:,} refused, {found.memory[0]} MiB after a twentieth, "
            f"{found.memory[-1]} MiB at the end",
        )
        assert not found.faults, f"{len(found.faults)} faults\n" + "\n\n".join(found.faults[:10])
        assert found.taken > INPUTS / PROCESSES / 20, "too few get further than the first look"
        assert found.refused > INPUTS / PROCESSES / 20
        assert found.growth <= MAX_GROWTH, f"memory is not flat: {found.memory} MiB"


@pytest.mark.once
@pytest.mark.runs_in("test-all")
def test_what_is_good_is_taken(tmp_path: Path) -> None:
    """Else all inputs fail for one reason."""
    refused = []
    for door in doors(tmp_path):
        try:
            door.take(door.good)
        except ShardqError as error:
            refused.append(f"{door.name}: {error}")
    assert refused == []


@pytest.mark.once
@pytest.mark.runs_in("test-all")
def test_all_doors_are_named(tmp_path: Path) -> None:
    """Each command that listens, and each module that decodes bytes, is a door or has its reason."""
    named = {module for door in doors(tmp_path) for module in door.modules}
    sources = [*(ROOT / "shardq").rglob("*.py")]
    decoding = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sources if DECODES.search(path.read_text())
    }
    assert decoding - named == {*APART}
    assert named & APART.keys() == set()
    listening = {name for name, takes in commands().items() if any("--listen" in each.option_strings for each in takes)}
    assert listening == SERVED.keys()
    assert {*SERVED.values()} <= {door.name for door in doors(tmp_path / "more")} | ELSEWHERE.keys()
    assert [each for each in ELSEWHERE.values() if not (ROOT / each).is_file()] == []


def test_the_fuzz_sees_what_is_no_error_of_ours() -> None:
    def take(number: int) -> None:
        if number == 1:
            raise KeyError(number)
        raise ConfigError("x" * (number * MAX_ERROR))

    for number, faults in ((0, 0), (1, 1), (2, 1)):
        fuzz = Fuzz(random.Random(0))
        fuzz.run([Door("one", (), number, take, spoil=lambda _, good: good)], 1)
        assert len(fuzz.outcome.faults) == faults


def test_an_input_that_takes_for_ever_is_seen() -> None:
    def take(_: int) -> None:
        while True:
            with contextlib.suppress(Exception):  # as some code does
                sum(range(1_000))

    before = signal.getsignal(signal.SIGPROF)
    try:
        fuzz = Fuzz(random.Random(0), seconds=0.05)
        fuzz.run([Door("one", (), 0, take, spoil=lambda _, good: good)], 1)
    finally:
        signal.signal(signal.SIGPROF, before)
    assert "TooSlow" in fuzz.outcome.faults[0]


def test_memory_that_grows_is_seen_and_what_is_loaded_once_is_none() -> None:
    flat, growing = [10, 50, 60, 60, 60, 61, 60, 61], [10, 50, 60, 70, 80, 90, 100, 110]
    assert [Outcome(memory=each).growth for each in (flat, growing)] == [1, 40]
