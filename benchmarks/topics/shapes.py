"""Shapes that break tries: many values at one pattern, one wide level, many `#`; and what generations cost."""

from __future__ import annotations

import ast
import sys
import time
import types
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.report import Table, Target, us
from benchmarks.timers.process import in_process
from benchmarks.timers.rounds import middle, place, rounds_of
from benchmarks.topics.workload import make
from shardq.routing.ctrie import Ctrie

WITH_GENERATIONS = ("atomic", "fast", "prune", "write", "ctrie")  # in the order of their imports
BOMBS = ((4, 16), (6, 24), (8, 30), (10, 40))


def measure(what: str, count: str) -> dict[str, float]:
    """One shape, in this process."""
    return {"values": values, "level": level, "bomb": bombs, "generations": generations}[what](int(count))


def values(count: int) -> dict[str, float]:
    """µs to add each value to one pattern."""
    trie, names = Ctrie(), [f"q{number}" for number in range(count)]
    return {"us": _timed(lambda: [trie.insert("a.*", name) for name in names]) / count * 1e6}


def level(count: int) -> dict[str, float]:
    """µs to add each word to one level."""
    trie, patterns = Ctrie(), [f"*.w{number}" for number in range(count)]
    return {"us": _timed(lambda: [trie.insert(pattern, "q") for pattern in patterns]) / count * 1e6}


def bombs(_: int) -> dict[str, float]:
    """Milliseconds for a lookup of n words beside a pattern with k `#`."""
    found = {}
    for many, words in BOMBS:
        trie, topic = Ctrie(), ".".join(["x"] * words)
        trie.insert("#." * many + "end", "q")
        found[f"{many}x{words}"] = min(_timed(lambda: trie.lookup(topic)) for _ in range(20)) * 1e3  # noqa: B023
    return found


def generations(count: int) -> dict[str, float]:
    """The time of writes, with the code as it is over that with every comparison of generations taken out."""
    patterns, _ = make(count, 0.1, 1)
    plain = _without_generations()
    with_them, without = [], []
    for _ in range(5):
        with_them.append(_timed(lambda: _written(Ctrie, patterns)))
        without.append(_timed(lambda: _written(plain, patterns)))
    return {"ratio": min(with_them) / min(without)}


def _written(kind: Callable[[], Any], patterns: Iterable[str]) -> None:
    trie = kind()
    for pattern in patterns:
        trie.insert(pattern, "q")
    for pattern in patterns:
        trie.remove(pattern, "q")


class _Forget(ast.NodeTransformer):
    """`x.gen is y` becomes True, `is not` False; the compiler drops what is then never run."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        sides = [node.left, *node.comparators]
        if any(isinstance(side, ast.Attribute) and side.attr == "gen" for side in sides):
            return ast.copy_location(ast.Constant(isinstance(node.ops[0], ast.Is)), node)
        return self.generic_visit(node)


def _without_generations() -> Any:
    """`Ctrie`, compiled from the same source without snapshots."""
    made: dict[str, types.ModuleType] = {}
    kept = {name: sys.modules[name] for name in list(sys.modules) if name.startswith("shardq.routing")}
    try:
        for short in WITH_GENERATIONS:
            name = f"shardq.routing.{short}"
            spec = find_spec(name)
            assert spec
            assert spec.origin
            module = types.ModuleType(name)
            sys.modules[name] = made[name] = module
            tree = ast.fix_missing_locations(_Forget().visit(ast.parse(Path(spec.origin).read_text())))
            exec(compile(tree, spec.origin, "exec"), module.__dict__)  # noqa: S102 - the project's own source
        return made["shardq.routing.ctrie"].Ctrie
    finally:
        sys.modules.update(kept)


def shapes(rounds: int, most: int) -> list[Table]:
    """One table of them all."""
    asked = {
        "1,000 values of one pattern": ("values", 1000),
        f"{most:,} values of one pattern": ("values", most),
        "1,000 words on one level": ("level", 1000),
        f"{2 * most:,} words on one level": ("level", 2 * most),
        "many #": ("bomb", 0),
        "writes, of those without generations": ("generations", 20_000),
    }
    found = rounds_of(rounds, list(asked), lambda name: in_process("benchmarks.topics.shapes", *asked[name]))
    small, large, narrow, wide, bomb, cost = asked
    rows: list[tuple[str, ...]] = [(name, us(middle(found, "us", name))) for name in (small, large, narrow, wide)]
    rows += [(f"a lookup of {n} words, {k} #", f"{middle(found, f'{k}x{n}', bomb):.3f} ms") for k, n in BOMBS]
    rows.append((cost, f"{middle(found, 'ratio', cost):.2f} x"))
    targets = [
        Target("R9 an added value, of 5 µs", middle(found, "us", large) / 5, 1, most=True),
        Target(
            "R9 an added value, of one of 1,000", middle(found, "us", large) / middle(found, "us", small), 2, most=True
        ),
        Target("R9 an added word, of 5 µs", middle(found, "us", wide) / 5, 1, most=True),
        Target(
            "R9 an added word, of one of 1,000", middle(found, "us", wide) / middle(found, "us", narrow), 2, most=True
        ),
        Target("R10 40 words and 10 #, of 1 ms", middle(found, "10x40", bomb), 1, most=True),
        Target("R8 writes, of those without generations", middle(found, "ratio", cost), 1.25, most=True),
    ]
    return [
        Table("routing-shapes", "routing: shapes, CPU time", place(), ("", "each"), rows, targets, {"found": found})
    ]


def _timed(act: Callable[[], object]) -> float:
    start = time.process_time()
    act()
    return time.process_time() - start
