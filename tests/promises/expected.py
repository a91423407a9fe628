"""The promises that are not kept yet. The list only shrinks.

A test in the list must fail, so what begins to hold must leave it. A pattern is the name of a test below this folder:
`*` stands for any text, and a name without a bracket for all cases of its test.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tests.selection import unrepeated

_FRESH = "a client that has seen nothing of the server's clock takes back leases that ended by it"

EXPECTED: Final[Mapping[str, str]] = {
    "test_clocks.py::test_the_first_read_of_a_new_client_after_a_jump_takes_no_live_lease[sync-3600000-*]": _FRESH,
    "test_clocks.py::test_the_first_read_of_a_new_client_after_a_jump_takes_no_live_lease[sync-86400000-*]": _FRESH,
}
"""Why tests fail, by pattern."""


def reason(name: str, patterns: Mapping[str, str]) -> str | None:
    """Why the test *name* fails; None if it does not stand in the list."""
    return next((why for pattern, why in patterns.items() if matches(name, pattern)), None)


def matches(name: str, pattern: str) -> bool:
    """Whether the pattern names the test, also one that is repeated (tests/flicker.py)."""
    name = unrepeated(name)
    whole = name if "[" in pattern else name.partition("[")[0]
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), whole) is not None
