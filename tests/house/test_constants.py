"""Names explain themselves: a constant has a noun, and a class has one meaning in all of shardq/."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
VAGUE: Final = frozenset(
    [
        "ABOVE",
        "AFRESH",
        "AGAIN",
        "AHEAD",
        "ALIKE",
        "ANNOUNCED",
        "ANYHOW",
        "AROUND",
        "ASKED",
        "AT_ONCE",
        "AWAITED",
        "BAD",
        "BELOW",
        "BETWEEN",
        "BROKEN",
        "CALM",
        "DIFFERENT",
        "DOES",
        "EARLY",
        "EITHER",
        "ELSEWHERE",
        "ENOUGH",
        "EVENLY",
        "EVERY",
        "EXACT",
        "FAR",
        "FAST",
        "FASTEST",
        "FATAL",
        "FEW",
        "FEWEST",
        "FINAL",
        "FIRST",
        "FRESH",
        "GO_ON",
        "GROWN",
        "HALVED",
        "HARD",
        "HERE",
        "HIDDEN",
        "IGNORED",
        "KEPT",
        "LARGE",
        "LARGEST",
        "LAST",
        "LASTING",
        "LASTS",
        "LATE",
        "LATELY",
        "LATER",
        "LATEST",
        "LEAST",
        "LONG",
        "LONGEST",
        "LOOKED",
        "LOOKING",
        "LOW",
        "HIGH",
        "MISSED",
        "MOST",
        "NARROW",
        "NARROWEST",
        "NEAR",
        "NEEDED",
        "NOTICED",
        "NOWHERE",
        "ODD",
        "OLDER",
        "OUTSIDE",
        "PARTLY",
        "PASSING",
        "PAST",
        "PAYS",
        "QUIET",
        "RARELY",
        "RECENT",
        "REMEMBERED",
        "SAYS",
        "SELDOM",
        "SHORT",
        "SHORTEST",
        "SILENT",
        "SLOW",
        "SLOWEST",
        "SMALL",
        "SMALLEST",
        "SOME",
        "SOON",
        "SOUGHT",
        "SPARSE",
        "STILL",
        "STRICT",
        "STUCK",
        "SUFFERS",
        "SWEPT",
        "TAKEN",
        "TOGETHER",
        "TRUSTED",
        "UNCLEAR",
        "UNSEEN",
        "UNTOLD",
        "UNUSUAL",
        "USUAL",
        "WAITED",
        "WIDE",
        "WIDEST",
        "WILD",
        "WITHIN",
        "WORTHWHILE",
        "YOUNG",
    ]
)
"""Words that say nothing of what is counted."""
VAGUE_HEADS: Final = ("MOST_", "LEAST_", "LONGEST_", "SHORTEST_")
"""Such are called MAX_ and MIN_."""
SHARED: Final = {
    "Call": "a task's call, which users write; a call of Redis",
    "Command": "Django looks for this name",
    "Declaration": "a file's, and the queue's part of it",
    "Member": "a frame's, and a family's of metrics",
    "Partition": "what `partitions()` tells, and a queue that is one",
    "Progress": "an action's, and an edge's: both public",
    "Refused": "what Redis refused; what a gateway did, which is public",
    "Role": "of Redis users, and of people: both public",
    "Sent": "what an edge tells, and a window: both public",
    "Waits": "the twins of threads and of tasks",
}
"""Class names with two meanings, and why. The list may only shrink."""


def _modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted((ROOT / "shardq").rglob("*.py")):
        yield path, ast.parse(path.read_text())


def _constants(module: ast.Module) -> Iterator[tuple[str, str]]:
    """Each constant and what is said of it."""
    for node, behind in zip(module.body, [*module.body[1:], None], strict=True):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)):
                names = [name]
            case ast.Assign(targets=targets):
                names = [each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)]
            case _:
                continue
        match behind:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield from ((name, text) for name in names if name.isupper())
            case _:
                yield from ((name, "") for name in names if name.isupper())


def test_a_constant_has_a_noun() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path, module in _modules()
        for name, _ in _constants(module)
        if name.strip("_") in VAGUE or name.startswith(VAGUE_HEADS)
    }
    assert not found


def test_what_is_said_of_a_constant_begins_with_what_it_counts() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path, module in _modules()
        for name, text in _constants(module)
        if text.startswith("So many")
    }
    assert not found


def test_a_class_has_one_meaning() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path, module in _modules():
        for name, count in Counter(node.name for node in module.body if isinstance(node, ast.ClassDef)).items():
            places[name].extend([str(path.relative_to(ROOT))] * count)
    shared = {name: where for name, where in places.items() if len(where) > 1}
    assert set(shared) == set(SHARED), shared
