"""An hour of everything: all features, all kinds of clients, and random faults without a pause; then it is judged.

About 40 seconds in `make test-all`, and SHARDQ_HOUR_MINUTES (60) in `make soak`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import Record
from tests.selection import SOAK
from tests.servers import ServerKind
from tests.soak.hour.run import run

SECONDS: Final = float(os.environ.get("SHARDQ_HOUR_MINUTES") or 60) * 60 if SOAK else 30.0
"""How long faults are dealt."""


@pytest.mark.runs_in("test-all", "soak")
@pytest.mark.timeout(600 + 2 * SECONDS)
def test_everything_works_while_everything_fails(
    kind: ServerKind | None, quick_disk: Path, seed: int, record_property: Record
) -> None:
    ran = run(kind, quick_disk, seed, SECONDS)
    print(ran)
