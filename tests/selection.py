"""Which command runs which test, and that nothing else is left out in silence.

A test runs in `make test` and in `make test-all`, unless

- it has the mark `runs_in`, which names the commands that run it: `runs_in("test-all")` of a test that takes more than
  about a second and shows no promise by itself, `runs_in("soak")` of one that takes minutes by nature,
  `runs_in("test-all", "soak")` of one that has a long form, too (`SOAK`);
- it is repeated with another client or on another server (`WORLDS`): only the first is in `make test`, and elsewhere
  `make test-all` runs the first of a test's own cases; `make soak` runs the others. The mark `everywhere` is for the
  cross-section: `make test-all` runs all cases there, and `make test` what has no cases of its own.

`SHARDQ_TESTS` names the command; without it, all but the soak runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

from tests.outcomes import break_run

COMMANDS: Final = ("test", "test-all", "soak")
COMMAND: Final = os.environ.get("SHARDQ_TESTS") or "test-all"
SOAK: Final = COMMAND == "soak"
"""Whether tests that have a long form run in it."""

REPEAT: Final = "SHARDQ_REPEAT"
"""The variable that says how often each test runs: see tests/flicker.py."""

WORLDS: Final = ("world", "running_server", "spread")
"""Parameters that say with which client and on which server a test runs; their first value is the usual one."""

_ELSEWHERE: Final = {*WORLDS, "client_kind", "repetition"}
"""The parameters that make no case of a test's own."""


def pytest_configure() -> None:
    """Refuse a command that does not exist: it would run nothing."""
    if COMMAND not in COMMANDS:
        raise pytest.UsageError(f"SHARDQ_TESTS={COMMAND}: it names one of {', '.join(COMMANDS)}")


@pytest.hookimpl(trylast=True)  # so that a test's own cases are told first
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat each test as often as somebody wants."""
    times = int(os.environ.get(REPEAT) or 1)
    if times > 1:
        metafunc.fixturenames.append("repetition")
        metafunc.parametrize("repetition", range(times), ids=[f"@{number}" for number in range(times)])


def unrepeated(nodeid: str) -> str:
    """The id of the test of which this is a repetition."""
    return re.sub(r"\[@\d+\]$|-@\d+(?=\]$)", "", nodeid)


@pytest.fixture
def repetition() -> int:
    """The how manieth of a test's repetitions this is."""
    return 0


def commands_of(item: pytest.Item, *, is_further: bool = False) -> Sequence[str]:
    """The commands of make that run this test; *is_further*: it is not the first of a test's cases in its world."""
    mark = item.get_closest_marker("runs_in")
    named: Sequence[str] = mark.args if mark else ("test", "test-all")
    if unknown := set(named) - {*COMMANDS}:
        raise pytest.UsageError(f"{item.nodeid}: runs_in names {', '.join(sorted(unknown))}, which no command is")
    indices = getattr(getattr(item, "callspec", None), "indices", {})
    if not any(indices.get(name, 0) for name in WORLDS):
        return named
    if item.get_closest_marker("everywhere") is None:
        return ["soak"] if is_further else [command for command in named if command != "test"]
    has_cases = bool(_params(item).keys() - _ELSEWHERE)
    return [command for command in named if command != "test" or not has_cases]


def _place(item: pytest.Item) -> tuple[str, ...]:
    """Which test this is a case of, in which world, and the how manieth repetition: each of these has a first case."""
    params = _params(item)
    return (item.nodeid.partition("[")[0], *(str(params.get(name)) for name in (*WORLDS, "repetition")))


def _params(item: pytest.Item) -> Mapping[str, object]:
    """The parameters of this test, by name."""
    return getattr(getattr(item, "callspec", None), "params", {})


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what another command runs."""
    places: set[tuple[str, ...]] = set()
    left = []
    for item in items:
        place = _place(item)
        if COMMAND not in commands_of(item, is_further=place in places):
            left.append(item)
        places.add(place)
    if left:
        _explained.update(item.nodeid for item in left)
        config.hook.pytest_deselected(items=left)
        gone = {id(item) for item in left}
        items[:] = [item for item in items if id(item) not in gone]


_explained: set[str] = set()
_strays: set[str] = set()
_BY_HAND: Final = ("keyword", "markexpr", "deselect", "lf", "stepwise")


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    """Note what something else takes away from the run, unless whoever started it asked for that."""
    asked = any(getattr(item.config.option, name, None) for item in items[:1] for name in _BY_HAND)
    if not asked:
        _strays.update(item.nodeid for item in items if item.nodeid not in _explained)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a process of the run has noted."""
    _strays.update(getattr(node, "workeroutput", {}).get("strays", ()))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if something was taken away from it, or tell the process that may."""
    if (told := getattr(session.config, "workeroutput", None)) is not None:
        told["strays"] = sorted(_strays)
    elif _strays:
        first, more = min(_strays), len(_strays) - 1
        break_run(session, f"{first} and {more} more were deselected without a reason")
