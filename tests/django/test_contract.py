"""Django's contract for backends, kept by shardq's: the cases of site/contract.py, each class in its own process."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from tests.django.conftest import Run

pytestmark = [pytest.mark.once]
CONTRACT = Path(__file__).parent / "site" / "contract.py"
CASES = [
    each.name for each in ast.parse(CONTRACT.read_text()).body if isinstance(each, ast.ClassDef) and each.name != "Case"
]
IMMEDIATE = "django.tasks.backends.immediate.ImmediateBackend"


@pytest.mark.runs_in("test-all")
@pytest.mark.parametrize("case", CASES)
def test_the_contract_of_a_backend(run: Run, case: str) -> None:
    told = run("unittest", f"tests.django.site.contract.{case}")
    assert told.returncode == 0, told.stderr


def test_the_same_application_with_django_s_backend_and_with_ours(run: Run) -> None:
    theirs, ours = (outcomes(run, each) for each in (IMMEDIATE, "shardq.django.Backend"))
    assert theirs.keys() == ours.keys()
    assert len(theirs) > 25
    assert theirs == ours


def outcomes(run: Run, backend: str) -> dict[str, Any]:
    told = run("tests.django.site.outcomes", SITE_BACKEND=backend)
    assert told.returncode == 0, told.stderr
    found: dict[str, Any] = json.loads(told.stdout, parse_constant=str)  # NaN is not equal to itself
    return found
