"""What is said where a package of an extra is missing, and that nothing else is called missing."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from shardq.errors import ConfigError
from shardq.extras import MODULES, extra

PYPROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
NAMES = {
    "backports.zstd": "backports.zstd",
    "cronsim": "cronsim",
    "django": "django",
    "duckdb": "duckdb",
    "google.protobuf": "protobuf",
    "grpc": "grpcio",
    "grpc_health": "grpcio-health-checking",
    "grpc_reflection": "grpcio-reflection",
    "matplotlib": "matplotlib",
    "numpy": "numpy",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "pyspark": "pyspark",
    "starlette": "starlette",
    "uvicorn": "uvicorn",
}
"""What the package of a module is called."""


def packages_of(name: str) -> set[str]:
    """Return what an extra brings; the data of time zones is for systems that have none."""
    found = {re.split(r"[<>=;! ]", each, maxsplit=1)[0] for each in PYPROJECT["optional-dependencies"][name]}
    others = {each for each in found if each.startswith("shardq[")}
    return found.difference(others, {"tzdata"}).union(*(packages_of(each[7:-1]) for each in others))


@pytest.mark.parametrize("name", MODULES)
def test_an_extra_brings_the_packages_of_its_modules(name: str) -> None:
    assert {NAMES[each] for each in MODULES[name]} == packages_of(name)


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("gateway", "grpc"),
        ("gateway", "grpc_health"),
        ("edge", "google"),
        ("edge", "google.protobuf"),
        ("plot", "matplotlib"),
    ],
)
def test_a_missing_package_is_told_in_one_line_with_the_extra(name: str, missing: str) -> None:
    told = f"the work needs the extra {name}: pip install 'shardq[{name}]' ({missing} is missing)"
    with pytest.raises(ImportError, match=f"^{re.escape(told)}$") as caught, extra(name, "the work"):
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)
    assert isinstance(caught.value, ConfigError)


@pytest.mark.parametrize(
    "broken",
    [
        ModuleNotFoundError("No module named 'typing_extensions'", name="typing_extensions"),
        ModuleNotFoundError("No module named 'grpc._cython'", name="grpc._cython"),
        ModuleNotFoundError("somebody's own"),
        ImportError("libstdc++.so.6: cannot open shared object file", name="grpc"),
    ],
    ids=repr,
)
def test_a_broken_package_is_not_called_missing(broken: ImportError) -> None:
    with pytest.raises(ImportError) as caught, extra("edge"):
        raise broken
    assert caught.value is broken
