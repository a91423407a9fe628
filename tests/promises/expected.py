"""The promises that an engine does not keep yet, one list for each engine. A list only shrinks.

A test in the list must fail, so what begins to hold must leave it. A pattern is the name of a test below this folder:
`*` stands for any text, and a name without a bracket for all cases of its test.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

ENGINE: Final = os.environ.get("SHARDQ_ENGINE") or "present"
"""The engine under test."""

EXPECTED: Final[Mapping[str, Mapping[str, str]]] = {
    "present": {},
    "new": {},
}


def expected() -> Mapping[str, str]:
    """Why tests fail with the engine under test, by pattern."""
    return EXPECTED[ENGINE]


def reason(name: str, patterns: Mapping[str, str]) -> str | None:
    """Why the test *name* fails; None if it does not stand in the list."""
    return next((why for pattern, why in patterns.items() if matches(name, pattern)), None)


def matches(name: str, pattern: str) -> bool:
    """Whether the pattern names the test."""
    whole = name if "[" in pattern else name.partition("[")[0]
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), whole) is not None
