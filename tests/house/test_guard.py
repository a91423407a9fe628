"""What users wrote is looked at in `shardq/worker/guard.py`; all else of a worker has plain data of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.house.lengths import FILES, ROOT

FOLDERS: Final = ("worker", "tasks", "django")
OF_ERRORS: Final = "shardq/model/failed.py"
"""What makes texts of errors, also for those that `nack` and `reject` are given."""
GUARDS: Final = ("shardq/worker/guard.py", "shardq/worker/crossing.py")
"""The guard, and what carries results and errors between threads and a loop."""
TAKES_ALL: Final = "takes any error"
ASKS: Final = "asks whether a value can be awaited"
TRACES: Final = "makes a text of a traceback"
PASSES: Final = "gives a future an error, which takes no StopIteration"
OF_GUARDS: Final = (TAKES_ALL, ASKS, TRACES)
"""What the guards may do, and others only as listed."""


class Place(NamedTuple):
    """A function that does one of these things; "" is the top of a module."""

    file: str
    function: str
    does: str


RUN_RAISES: Final = "the outermost call of a thread or a task of the worker's own: `run` raises the error"
GOES_ON: Final = "it raises the error again, at once"
IN_A_CHILD: Final = "the guard's part in a child process, whose pipe takes no error"
OF_THE_GUARD: Final = "the guard calls it for a text or an attribute of an error"
IN_LIST: Final[dict[Place, str]] = {
    Place(OF_ERRORS, "text_of", TAKES_ALL): OF_THE_GUARD,
    Place("shardq/worker/outcome.py", "_of", TAKES_ALL): OF_THE_GUARD,
    Place("shardq/worker/lane.py", "Lane._live", TAKES_ALL): RUN_RAISES,
    Place("shardq/worker/lane.py", "Lane._performed", TAKES_ALL): "of a read or a settling: `run` raises the error",
    Place("shardq/worker/engine.py", "Engine.work.work", TAKES_ALL): RUN_RAISES,
    Place("shardq/worker/workers.py", "AsyncWorker._work.work", TAKES_ALL): RUN_RAISES,
    Place("shardq/worker/own_loop.py", "OwnLoop._live", TAKES_ALL): "of a task that a handler left behind; it is told",
    Place("shardq/worker/own_loop.py", "OwnLoop.within.live", TAKES_ALL): "of a lifespan: `run` raises the error",
    Place("shardq/worker/signals.py", "SharedHandler.__call__", TAKES_ALL): "of the program's handler: `run` raises it",
    Place("shardq/worker/children.py", "Children.run", TAKES_ALL): GOES_ON,
    Place("shardq/worker/children.py", "_handled", TAKES_ALL): IN_A_CHILD,
    Place("shardq/worker/children.py", "_answer_to", TAKES_ALL): IN_A_CHILD,
    Place("shardq/tasks/batches.py", "Collector._work", TAKES_ALL): "each member raises its error, to the guard",
    Place("shardq/tasks/batches.py", "errors_of", TAKES_ALL): "of the mapping in a PartlyFailed; all have failed then",
    Place("shardq/tasks/finding.py", "_called", TAKES_ALL): "of a codec of the user's own: its message is no call",
    Place("shardq/django/worker.py", "Attempt.run", TAKES_ALL): "Django's record has the error, as the guard tells it",
    Place("shardq/django/worker.py", "Attempt.run_async", TAKES_ALL): "the same",
}
"""Who does one of these things besides the guards, and why."""

ASKING: Final = {"isawaitable", "iscoroutine", "isfuture"}


def done_in(node: ast.AST) -> str | None:
    """Return which of these things *node* does itself."""
    match node:
        case ast.ExceptHandler(type=None):
            return TAKES_ALL
        case ast.ExceptHandler(type=ast.expr() as kind) if names_base(kind):
            return TAKES_ALL
        case ast.Call(func=func, args=kinds) if last_name(func) == "suppress" and any(map(names_base, kinds)):
            return TAKES_ALL
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name) if name in ASKING:
            return ASKS
        case ast.alias(name="traceback") | ast.ImportFrom(module="traceback"):
            return TRACES
        case ast.Attribute(attr="set_exception"):
            return PASSES
    return None


def names_base(kind: ast.expr) -> bool:
    return any(last_name(node) == "BaseException" for node in ast.walk(kind))


def last_name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def done(tree: ast.AST, within: str = "") -> Iterator[tuple[str, str]]:
    """The functions in *tree*, by their qualified names, that do one of these things, each with what it does."""
    for node in ast.iter_child_nodes(tree):
        if (found := done_in(node)) is not None:
            yield within, found
        is_scope = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        yield from done(node, f"{within}.{node.name}".strip(".") if is_scope else within)  # type: ignore[attr-defined]


def places(path: Path) -> Iterator[Place]:
    """The places in a file that the list must have."""
    file = path.relative_to(ROOT).as_posix()
    for function, does in done(ast.parse(path.read_text())):
        if file not in GUARDS or does not in OF_GUARDS:
            yield Place(file, function, does)


def test_only_the_guards_and_those_in_the_list_look_at_what_users_wrote() -> None:
    found = {
        place
        for path in FILES
        if path.relative_to(ROOT / "shardq").parts[0] in FOLDERS or path == ROOT / OF_ERRORS
        for place in places(path)
    }  # fmt: skip
    assert sorted(found - IN_LIST.keys()) == [], "call guard.py for it, or give a reason in the list"
    assert sorted(IN_LIST.keys() - found) == [], "it is gone from there: take it from the list"


@pytest.mark.parametrize(
    ("text", "does"),
    [
        ("try:\n    f()\nexcept BaseException:\n    pass\n", TAKES_ALL),
        ("try:\n    f()\nexcept (OSError, BaseException) as error:\n    raise\n", TAKES_ALL),
        ("try:\n    f()\nexcept builtins.BaseException:\n    pass\n", TAKES_ALL),
        ("try:\n    f()\nexcept:\n    pass\n", TAKES_ALL),
        ("with contextlib.suppress(BaseException):\n    f()\n", TAKES_ALL),
        ("if inspect.isawaitable(found):\n    await found\n", ASKS),
        ("from inspect import isawaitable\n", ASKS),
        ("asyncio.iscoroutine(found)\n", ASKS),
        ("import traceback\n", TRACES),
        ("import traceback as shown\n", TRACES),
        ("from traceback import format_exception\n", TRACES),
        ("ended.set_exception(error)\n", PASSES),
        ("loop.call_soon_threadsafe(ended.set_exception, error)\n", PASSES),
    ],
)
def test_each_of_these_things_is_seen(text: str, does: str) -> None:
    inside = "class A:\n    async def f(self):\n" + "".join(f"        {line}\n" for line in text.splitlines())
    assert list(done(ast.parse(text))) == [("", does)]
    assert list(done(ast.parse(inside))) == [("A.f", does)]


def test_what_others_may_do_is_left_alone() -> None:
    text = "try:\n    f()\nexcept (OSError, Exception):\n    ended.set_result(None)\n"
    assert list(done(ast.parse(f"{text}with suppress(RuntimeError):\n    g()\n"))) == []


def test_no_error_goes_through_a_future_even_in_a_guard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (guard := tmp_path / GUARDS[0]).parent.mkdir(parents=True)
    guard.write_text("import traceback\n\ndef f(ended, error):\n    ended.set_exception(error)\n")
    monkeypatch.setattr("tests.house.test_guard.ROOT", tmp_path)
    assert list(places(guard)) == [Place(GUARDS[0], "f", PASSES)]
