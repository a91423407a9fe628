"""A file is one noun: the size of its functions, its public names, and what it may never import."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

import shardq
from shardq import ExtraMissing
from tests.house.lengths import FILES, ROOT, long_functions

HAS_SPARK = find_spec("pyspark") is not None
BANNED_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}
BANNED_CALLS = {"eval", "exec", "yaml.load", "yaml.unsafe_load", "pandas.read_pickle"}


def found_in(look: Callable[[Path], object]) -> dict[str, object]:
    """What *look* finds in a file of the package, by file."""
    found = {path.relative_to(ROOT).as_posix(): look(path) for path in FILES}
    return {name: each for name, each in found.items() if each}


def banned(tree: ast.AST) -> Iterator[str]:
    """What in *tree* could run bytes that somebody sent."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names if name.name.split(".")[0] in BANNED_MODULES)
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in BANNED_MODULES:
                yield module
            case ast.Call(func=func) if ast.unparse(func) in BANNED_CALLS:
                yield ast.unparse(func)


ONE_LOOP = {"shardq/routing/lookup.py": ["walk"]}
"""The walk over a trie is one loop: each function that it called would cost a lookup of 2 µs a tenth."""


def test_no_function_is_long() -> None:
    assert found_in(lambda path: long_functions(path.read_text())) == ONE_LOOP


def test_that_a_function_is_long_is_seen() -> None:
    body = "".join(f"    a{line} = {line}\n" for line in range(60))
    assert long_functions(f"def f():\n{body}") == ["f"]
    assert long_functions("def f():\n    pass\n") == []


def test_no_module_runs_what_it_was_sent() -> None:
    assert found_in(lambda path: list(banned(ast.parse(path.read_text())))) == {}


@pytest.mark.parametrize(
    "text", ["import pickle", "from marshal import loads", "eval('1')", "import yaml\nyaml.load('a')"]
)
def test_that_rule_can_fail(text: str) -> None:
    assert list(banned(ast.parse(text)))


def wrong_names(path: Path) -> list[str]:
    """Names of `__all__` that are out of order or not there."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    if name.endswith("__main__"):  # importing it would run it
        return []
    if name.startswith("shardq.django"):  # tests/django looks at it: Django is in an environment of its own
        return []
    try:
        module = import_module(name)
    except ExtraMissing:
        if HAS_SPARK or not name.startswith("shardq.spark"):
            raise
        return []  # with SPARK=no what needs PySpark is left out
    names = list(getattr(module, "__all__", None) or ())
    order = [each for each, right in zip(names, sorted(names), strict=True) if each != right]
    return order + [each for each in names if not hasattr(module, each)]


def test_all_is_sorted_and_names_what_is_there() -> None:
    assert found_in(wrong_names) == {}


def test_the_package_lists_all_that_it_exports() -> None:
    tree = ast.parse((ROOT / "shardq" / "__init__.py").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {each.asname or each.name for node in imports if str(node.module)[:6] == "shardq" for each in node.names}
    public = {name for name in names if not name.startswith("_")}
    assert public <= set(shardq.__all__)


def test_what_not_every_program_needs_is_imported_when_it_is_asked_for() -> None:
    later = (
        "worker",
        "client.async_client",
        "embedded",
        "assignment",
        "routing",
        "ops.topics.publish",
        "ops.inspect.peek",
    )
    asked = (
        f"import sys, shardq; print([each for each in {later} if f'shardq.{{each}}' in sys.modules]);"
        "print(set(shardq.__all__) <= set(dir(shardq)));"
        "print(*(getattr(shardq, each).__name__ for each in shardq.__all__))"
    )
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    none, are_shown, names = told.splitlines()
    assert (none, are_shown) == ("[]", "True")
    assert names.split() == [getattr(shardq, each).__name__ for each in shardq.__all__]


def test_public_names_are_documented() -> None:
    things = {name: getattr(shardq, name) for name in shardq.__all__}
    described = {name: thing for name, thing in things.items() if inspect.isclass(thing) or inspect.isfunction(thing)}
    assert [name for name, thing in described.items() if not (thing.__doc__ or "").strip()] == []
    methods = {
        f"{name}.{method}": body
        for name, thing in described.items()
        for method, body in vars(thing).items()
        if not method.startswith("_") and inspect.isfunction(body)
    }
    assert [name for name, body in methods.items() if not inspect.getdoc(body)] == []


def test_the_package_and_its_metadata_agree_on_the_version() -> None:
    assert shardq.__version__ == metadata.version("shardq")
