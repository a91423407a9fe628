"""The page writes numbers and times as the command line does: where a function is there twice, both say the same."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from shardq.model import wording
from shardq.model.outlook import WAIT_REASONS
from shardq.outlook.reasons import REASON_WORDS
from tests.dashboard.browser import Open, served
from tests.dashboard.stage import Stage

NOW = 1_795_833_060.0
NUMBERS = [
    0, 0.02, 0.0994, 0.0996, 0.4, 0.5, 0.94, 0.96, 0.994, 0.996, 1, 1.24, 1.26, 2.5, 3.5, 9.94, 9.96, 12.4, 42, 99.4,
    119.4, 119.6, 480, 999, 1000, 3569, 3571, 9000, 13_097, 35_820, 35_860, 172_799, 172_801, 1_234_567, 1e9,
]  # fmt: skip
SHARES = [0, 0.001, 0.012, 0.05, 0.0994, 0.0996, 0.1, 0.5, 0.984, 1]
SIZES = [0, 3, 999, 1000, 1500, 1024, 10_240, 512 * 1024**2, 4 * 1024**3, 1.25 * 1024**3, 3e12, 9e14]
TIMES = [NOW - ago for ago in (0, 60, 40_000, 43_000, 43_300, 90_000, 500_000, 518_500, 9e6, 3e7, 9e7, -60, -90_000)]


def js(open_look: Open, expression: str, argument: Any, zone: str = "UTC") -> Any:
    """What an expression with the page's `words` and an argument gives in the browser."""
    with ExitStack() as stack:
        look = open_look(stack.enter_context(served(Stage().app)), zone=zone)
        look.go("#/nothing")
        base = look.address + "js/words.js"
        code = f"async ([base, given]) => {{ const words = await import(base); return {expression}; }}"
        found = look.page.evaluate(code, [base, argument])
        look.check()
        return found


@pytest.mark.runs_in("test-all")
def test_numbers_are_written_as_in_a_terminal(open_look: Open) -> None:
    found = js(open_look, "given.map((x) => [words.n(x), words.span(x), words.rate(x), words.age(x)])", NUMBERS)
    expected = [[wording.number(x), wording.span(x), wording.rate(x), wording.age(x)] for x in NUMBERS]
    assert found == expected
    assert js(open_look, "given.map(words.pct)", SHARES) == [wording.share(x) for x in SHARES]
    assert js(open_look, "given.map(words.size)", SIZES) == [wording.size(x) for x in SIZES]
    assert js(open_look, "given.map((x) => words.plural(x, 'tenant'))", [0, 1, 2, 2000]) == [
        wording.plural(x, "tenant") for x in (0, 1, 2, 2000)
    ]


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Kiritimati"])
def test_times_are_written_as_in_a_terminal(open_look: Open, zone: str) -> None:
    found = js(open_look, "given.times.map((x) => words.when(x, given.now))", {"times": TIMES, "now": NOW}, zone)
    assert found == [wording.moment(x, NOW, ZoneInfo(zone)) for x in TIMES]


@pytest.mark.runs_in("test-all")
def test_reasons_have_one_name(open_look: Open) -> None:
    found = js(open_look, "[words.REASONS, words.MEANS]", None)
    assert found == [[*WAIT_REASONS], {reason: [*words] for reason, words in REASON_WORDS.items()}]
