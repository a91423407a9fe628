"""What is known of a run of pytest, for programs that judge it."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from tests.outcomes import MAX_FAILURE, MAX_SHOWN, Outcomes, shortened


def report(
    test: str, when: Literal["setup", "call", "teardown"], failure: str = "", sections: Any = ()
) -> pytest.TestReport:
    outcome: Literal["passed", "failed"] = "failed" if failure else "passed"
    return pytest.TestReport(test, ("", 0, ""), {}, outcome, failure or None, when, sections)


def test_a_test_whose_teardown_fails_has_failed_with_all_that_pytest_shows() -> None:
    outcomes = Outcomes()
    for each in [
        *(report("a", "setup"), report("a", "call"), report("a", "teardown", "E late")),
        *(report("b", "setup"), report("b", "call", "E early", [("Captured stdout call", "told")])),
        *(report("b", "teardown", "E late"), report("c", "setup", "E first"), report("c", "teardown")),
        *(report("d", "setup"), report("d", "call"), report("d", "teardown")),
    ]:
        outcomes.pytest_runtest_logreport(each)
    assert outcomes.passed == {"d"}
    assert [*outcomes.failed] == ["a", "b", "c"]
    assert [line for line in outcomes.failed["b"].splitlines() if "Captured" not in line] == [
        "E early",
        "told",
        "E late",
    ]


def test_what_is_kept_of_failures_is_bounded() -> None:
    outcomes = Outcomes()
    for number in range(10 * MAX_SHOWN):
        outcomes.pytest_runtest_logreport(report(str(number), "call", "x" * 10 * MAX_FAILURE))
        outcomes.pytest_runtest_logreport(report(str(number), "teardown", "y" * 10 * MAX_FAILURE))
    assert len(outcomes.failed) == 10 * MAX_SHOWN
    assert sum(map(len, outcomes.failed.values())) < MAX_SHOWN * (MAX_FAILURE + 100)


def test_a_long_failure_keeps_its_beginning_and_its_end() -> None:
    assert shortened("a" * 10, 10) == "a" * 10
    assert shortened("a" * 100 + "b" * 1000 + "c" * 100, 20) == "a" * 10 + "\n[1180 letters are left out]\n" + "c" * 10
