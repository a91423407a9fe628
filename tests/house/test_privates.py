"""What shardq uses of PySpark that PySpark does not promise is little, and in one file."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.lengths import ROOT

ALLOWED = "shardq/spark/privates.py"
MAX_USES = 10
OWN = frozenset({"self", "cls"})
OF_TUPLES = frozenset({"_replace", "_asdict", "_fields", "_make"})
UNDOCUMENTED = ("pyspark.java_gateway", "pyspark.accumulators", "pyspark.util", "pyspark.serializers")


def is_private(name: object) -> bool:
    return isinstance(name, str) and name.startswith("_") and not name.startswith("__") and name not in OF_TUPLES


def uses(tree: ast.AST) -> Iterator[str]:
    """The private names of other objects in *tree*, whether as an attribute or as the text of one."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in OWN and is_private(name):
                pass
            case ast.Attribute(value=ast.Name(id="sys"), attr=name):
                pass
            case ast.Attribute(attr=name) if is_private(name):
                yield name
            case ast.Call(func=ast.Name(id="getattr" | "setattr" | "hasattr"), args=[_, ast.Constant(value=name), *_]):
                if is_private(name):
                    yield str(name)


def undocumented(tree: ast.AST) -> Iterator[str]:
    """The modules in *tree* that PySpark does not document, and looks into variables of others."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)) if module.startswith(UNDOCUMENTED):
                yield module
            case ast.Attribute(attr="f_locals"):
                yield "f_locals"


def trees() -> Iterator[tuple[str, ast.AST]]:
    for path in sorted(Path(ROOT / "shardq" / "spark").rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text())


def test_only_one_file_uses_what_pyspark_does_not_promise() -> None:
    found = {name: [*uses(tree), *undocumented(tree)] for name, tree in trees()}
    assert [name for name, each in found.items() if each] == [ALLOWED]


def test_it_has_ten_uses_at_most() -> None:
    found = [each for _, tree in trees() for each in uses(tree)]
    assert 0 < len(found) <= MAX_USES, found


def test_a_use_is_seen() -> None:
    text = 'spark._jvm.x\ngetattr(spark, "_jsc", None)\nself._held\nrow._replace(a=1)\nSparkContext._gateway = None'
    assert sorted(uses(ast.parse(text))) == ["_gateway", "_jsc", "_jvm"]
    assert [*undocumented(ast.parse("from pyspark.java_gateway import launch_gateway"))] == ["pyspark.java_gateway"]
