"""Each test that is listed as different with partitions is one of the suite."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conformance.partitions.differences import DIFFERENCES

TESTS = Path(__file__).parents[2]


def test_no_name_is_listed_that_no_test_has() -> None:
    files = [path for room in ("conformance", "promises") for path in (TESTS / room).rglob("*.py")]
    names = {name for path in files for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)}
    assert DIFFERENCES.keys() - names == set()
