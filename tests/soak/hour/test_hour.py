"""An hour of everything: all features, all kinds of clients, and random faults without a pause; then it is judged.

About 40 seconds in `make test-all`, and SHARDQ_HOUR_MINUTES (60) in `make soak`. The history and the report of a run
that fails stay in pytest's folder, whose name the failure tells.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import Record
from tests.parts import LINUX
from tests.selection import SOAK
from tests.servers import ServerKind
from tests.soak.hour.bounds import Bounds
from tests.soak.hour.report import write
from tests.soak.hour.run import run

SECONDS: Final = float(os.environ.get("SHARDQ_HOUR_MINUTES") or 60) * 60 if SOAK else 0
"""How long faults are dealt; 0 for a handful of them."""

BOUNDS: Final = Bounds() if SOAK else Bounds(growth=100.0)
"""How it is judged: of a short run the growth of processes says nothing, for they have only begun."""


@pytest.mark.runs_in("test-all", "soak")
@pytest.mark.timeout(900 + 2 * SECONDS)
@LINUX.needed
def test_no_promise_is_broken_while_everything_fails(
    kind: ServerKind | None, quick_disk: Path, tmp_path: Path, seed: int, record_property: Record
) -> None:
    try:
        ran = run(kind, quick_disk, tmp_path, seed, SECONDS)
    finally:  # also of a run that was cut short
        report = write(tmp_path / "history", tmp_path / "report.html", BOUNDS)
    dealt, messages = ran.dealt.total(), sum(len(each.ids) for each in report.record.queues.values())
    record_property("note", f"hour: seed {seed}, {messages:,} messages, {dealt} faults of {len(ran.dealt)} kinds")
    for name, why in ran.missing.items():
        record_property("note", f"hour: without the fault '{name}': {why}")
    assert report.judgement.violations == [], f"{report.text()}\n{tmp_path}"
