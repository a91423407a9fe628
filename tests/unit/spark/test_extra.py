"""The extra takes the versions of PySpark that were tried, and those that delta-spark of PyPI takes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

EXTRAS = tomllib.loads((Path(__file__).resolve().parents[3] / "pyproject.toml").read_text())["project"]
WANTED = {each.name: each for each in map(Requirement, EXTRAS["optional-dependencies"]["spark"])}
LATEST_OF_DELTA = {"4.3.1": "4.1.1", "4.4.1": "4.2.0"}
"""The newest PySpark that each version of delta-spark takes, by its metadata."""


@pytest.mark.parametrize("version", ["4.0.5", "4.1.4", "4.2.1", "4.3.0", *LATEST_OF_DELTA.values()])
def test_the_extra_takes_it(version: str) -> None:
    assert WANTED["pyspark"].specifier.contains(version)


@pytest.mark.parametrize("version", ["3.5.9", "5.0.0"])
def test_the_extra_takes_no_other(version: str) -> None:
    assert not WANTED["pyspark"].specifier.contains(version)
