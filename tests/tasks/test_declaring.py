"""What cannot work is an error where it is declared, and names the function."""

from __future__ import annotations

import operator
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from functools import partial, wraps
from typing import Any
from uuid import UUID

import msgspec
import pytest

from shardq import ConfigError
from shardq.tasks import Call, Tasks


class Own:
    """No type that msgspec knows."""


@dataclass
class Half:
    """Of which a part is not there yet."""

    part: Missing  # type: ignore[name-defined]  # noqa: F821


def plainly(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return plain


def unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    def hiding(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return hiding


def declared(source: str, decorator: str = "tasks.task") -> Tasks[Any]:
    """Declare the function in *source*, as a module would."""
    tasks: Tasks[Any] = Tasks("jobs")
    text = f"@{decorator}\n{textwrap.dedent(source)}"
    exec(compile(text, "somewhere.py", "exec"), NAMES | {"tasks": tasks, "__name__": "somewhere"})  # noqa: S102
    return tasks


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("def f(a: Own): ...", "the parameter 'a'.*Own"),
        ("def f(a: dict[str, list[Own]]): ...", "the parameter 'a'.*Own"),
        ("def f() -> Own: ...", "what task 'somewhere.f'.*returns"),
        ("def f(*a): ...", "the parameter 'a'.*by name"),
        ("def f(**a): ...", "the parameter 'a'.*by name"),
        ("def f(a, /): ...", "the parameter 'a'.*by name"),
        ("def f(a: int = 'x'): ...", "the default of the parameter 'a'"),
        ("def f(a=Own()): ...", "the default of the parameter 'a'"),
        ("def f(a: 'Missing'): ...", "an annotation of .* names 'Missing', which is not there .*above.*TYPE_CHECKING"),
        ("def f(a: Half): ...", "the type of the parameter 'a' .* names 'Missing', which is not there .*above"),
        ("def f(a: date | datetime): ...", "nothing tells which member of its union comes back"),
        ("def f(a: tuple[int, ...] | list[int]): ...", "nothing tells which member of its union comes back"),
        ("def f() -> dict[str, int] | Order: ...", "nothing tells which member of its union comes back"),
        ("@plainly\nasync def f(a: int): ...", "an async def below a decorator that made a plain function of it"),
        ("def f(a: int):\n    yield a", "task 'somewhere.f'.*has a yield"),
        ("async def f(a: int):\n    yield a", "task 'somewhere.f'.*has a yield"),
    ],
)
def test_a_function_that_messages_cannot_call_is_refused(source: str, wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong) as raised:
        declared(source)
    assert "somewhere.py:1" in str(raised.value)


def test_a_decorator_that_hides_the_parameters_is_told_what_to_use() -> None:
    with pytest.raises(ConfigError, match=r"the parameter 'args' .* functools.wraps"):
        declared("@unwrapped\ndef f(a: int): ...")


@pytest.mark.parametrize("source", ["def f(a: list[int], b: int): ...", "def f(): ...", "def f(a: int): ..."])
def test_a_batch_has_one_parameter_which_is_a_list(source: str) -> None:
    with pytest.raises(ConfigError, match=r"somewhere.py:1.*batch"):
        declared(source, "tasks.batch()")


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"retries": -1}, "retries"),
        ({"retries": 16}, "max_deliveries = 16"),
        ({"time_limit": 0}, "time_limit"),
        ({"retry_on": ("x",)}, "retry_on"),
        ({"give_up_on": ValueError}, r"give_up_on of task .* such as \(ConnectionError,\)"),
        ({"retrys": 3}, "unknown task setting 'retrys'; known are backoff, give_up_on, name, retries"),
        ({"name": ""}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "a" * 201}, "name"),
        ({"backoff": 3}, "backoff"),
    ],
)
def test_an_option_that_cannot_work_is_refused(options: dict[str, Any], wrong: str) -> None:
    tasks: Tasks[None] = Tasks("jobs")
    with pytest.raises(ConfigError, match=wrong):
        tasks.task(**options)(lambda: None)


@pytest.mark.parametrize(
    ("made_of", "wrong"),
    [
        ("report", "not of 'report'; a name is given as name="),
        (Own, "'tests.tasks.test_declaring.Own'.*is a class"),
        (partial(print, 1), "not of a functools.partial of <built-in function print>: define a function that calls it"),
        (operator.itemgetter(1), "has no name of its own"),
    ],
)
def test_a_task_is_made_of_a_function(made_of: Any, wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        Tasks("jobs").task(made_of)


def test_two_tasks_of_one_name_are_refused() -> None:
    tasks: Tasks[None] = Tasks("jobs")
    tasks.task(name="a")(lambda: None)
    with pytest.raises(ConfigError, match=r"(?s)two tasks are called 'a'.*test_declaring.py"):
        tasks.task(name="a")(lambda: None)


def test_a_decorator_may_be_used_for_several_functions() -> None:
    tasks: Tasks[None] = Tasks("jobs")
    patient = tasks.task(time_limit=5, retries=3)

    def first() -> None: ...

    def second() -> None: ...

    assert [(task.time_limit, task.retries.retries) for task in (patient(first), patient(second))] == [(5, 3)] * 2


def test_as_many_retries_as_the_queue_has_deliveries_left() -> None:
    tasks: Tasks[None] = Tasks("jobs", max_deliveries=5)
    tasks.task(name="a", retries=4)(lambda: None)
    with pytest.raises(ConfigError, match="at most 4"):
        tasks.task(name="b", retries=5)(lambda: None)


@pytest.mark.parametrize("settings", [{"streams": 0}, {"strems": 3}])
def test_bad_settings_of_the_queue_are_refused_at_once(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Tasks("jobs", **settings)


class Color(Enum):
    RED = "red"


@dataclass
class Order:
    id: UUID
    days: list[date]
    color: Color = Color.RED


NAMES = {
    each.__name__: each for each in (Own, Half, Order, plainly, unwrapped, date, datetime)
}  # fmt: skip


def test_a_call_is_a_list_of_name_and_arguments() -> None:
    tasks: Tasks[None] = Tasks("jobs")

    @tasks.task(name="ship")
    def ship(order: Order, copies: int = 1, *, note: str = "") -> None: ...

    order = Order(UUID(int=5), [date(2026, 1, 2)])
    call = ship.call(order, note="x")
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(call))
    assert sent == [
        "ship",
        {"order": {"id": str(UUID(int=5)), "days": ["2026-01-02"], "color": "red"}, "note": "x"},
    ]
    assert isinstance(call, Call)
    assert repr(call) == "Call('ship')", "it shows no argument"


def test_a_call_that_the_function_does_not_take_is_refused_where_it_is_made() -> None:
    tasks: Tasks[None] = Tasks("jobs")

    @tasks.task(name="add")
    def add(a: int, b: int = 2) -> int:
        return a + b

    wrong: Any = add.call
    calls: list[tuple[Callable[[], object], str]] = [
        (wrong, "lacks the argument 'a'"),
        (lambda: wrong(1, 2, 3), "2 positional"),
        (lambda: wrong(1, c=3), "no parameter 'c'"),
        (lambda: wrong(1, a=3), "'a' twice"),
    ]
    for call, text in calls:
        with pytest.raises(ConfigError, match=text):
            call()
    assert add(3) == 5, "called itself it is the function"
