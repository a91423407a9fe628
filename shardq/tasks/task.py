"""One task: a function that workers run by its name, and how often it is tried."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast

import msgspec

from shardq.arguments import MAX_BLOCK, seconds, whole
from shardq.backoff import Backoff, check_backoff
from shardq.errors import ConfigError, ProcessDied
from shardq.model.annotation import Annotation
from shardq.model.call import IS_NAME, Call
from shardq.tasks.signature import Signature
from shardq.worker.guard import is_one_of
from shardq.worker.outcome import TimeLimit

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")
X = TypeVar("X")

MAX_BATCH: Final = 1000
MAX_WAIT: Final = 60.0
INTERRUPTED: Final = (TimeLimit, ProcessDied)
"""The errors of a task that the worker has ended, or whose process has died: its function did not raise them."""


class Retries(msgspec.Struct, frozen=True, kw_only=True):
    """How often a task is tried, and when: see `Tasks.task`."""

    retries: int | None = None
    backoff: Backoff | None = None
    retry_on: tuple[type[BaseException], ...] = (BaseException,)
    give_up_on: tuple[type[BaseException], ...] = ()

    def check(self, where: str) -> None:
        """ConfigError for a bad setting."""
        if self.retries is not None:
            whole(f"retries of {where}", self.retries, 0, 1_000_000)
        if self.backoff is not None:
            check_backoff(self.backoff)
        for name, classes in (("retry_on", self.retry_on), ("give_up_on", self.give_up_on)):
            if not isinstance(classes, tuple) or not all(
                isinstance(each, type) and issubclass(each, BaseException) for each in classes
            ):
                raise ConfigError(f"{name} of {where} must be classes of exceptions, such as (ConnectionError,)")

    def check_deliveries(self, where: str, queue: str, most: int) -> None:
        """ConfigError if a *queue*, which delivers a message at most *most* times, does not deliver it that often."""
        if self.retries is not None and self.retries >= most:
            raise ConfigError(
                f"{where} has retries={self.retries}, but queue {queue!r} delivers a message at most max_deliveries = "
                f"{most} times: let it be at most {most - 1}, or raise that"
            )

    def tries_again(self, error: BaseException, deliveries: int) -> bool:
        """Say whether a task that failed with *error* in its delivery number *deliveries* is tried once more."""
        # The function did not raise INTERRUPTED, so a user who lists in `retry_on` what it raises does not think of
        # them.
        if is_one_of(error, self.give_up_on) or is_one_of(error, (*INTERRUPTED, *self.retry_on)) is False:
            return False
        return self.retries is None or deliveries <= self.retries


class Task(Generic[P, T, R]):
    """A function that workers run. Called itself it is that function: `report(first, last)` runs it here and now.

    `P` are its parameters, `T` is its result, and `R` what calling it returns: `T`, or a coroutine of it. Its messages
    call it by `name`. `is_async` is whether it is an `async def`, `is_batch` whether it takes a list, and `most_tries`
    how often it is tried at most (None: as often as its queue delivers). `where` is its name with its place in the
    code, `signature` its parameters, and `mark_at` where a packed call has their mark.

    >>> tasks = Tasks("mails")
    >>> @tasks.task(retries=3)
    ... def send(to: str, copies: int = 1) -> int:
    ...     return len(to) * copies
    >>> send("ada", copies=2)
    6
    >>> send.name, send.retries.retries
    ('__main__.send', 3)
    """

    def __init__(
        self, function: Callable[P, R], name: str, retries: Retries, time_limit: float | None, *, is_batch: bool = False
    ) -> None:
        self.where: str = f"task {name!r} ({_place(function)})"
        _check_kind(function, self.where)
        if not IS_NAME.fullmatch(name):
            raise ConfigError(f"the name of {self.where} must have 1 to 200 letters, digits or any of . _ - : / < >")
        retries.check(self.where)
        if time_limit is not None:
            seconds(f"time_limit of {self.where}", time_limit, 0.001, MAX_BLOCK)
        functools.update_wrapper(self, function)
        self.function, self.name, self.retries, self.time_limit = function, name, retries, time_limit
        self.mark_at: int = len(name) + (2 if len(name) < 32 else 3) if name.isascii() else 0
        self.most_tries: int | None = None if retries.retries is None else retries.retries + 1
        self.is_async: bool = inspect.iscoroutinefunction(function)
        self.is_batch: bool = is_batch
        self.signature: Signature = Signature(function, self.where, is_batch=is_batch)
        self._call: Any = msgspec.defstruct(
            "Call", [], bases=(Call,), namespace={"returns": self.signature.returns}, array_like=True, frozen=True
        )

    @property
    def returns(self) -> Annotation:
        """The type of its results: the function's return annotation."""
        return self.signature.returns

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function here, as a test does."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        """The task's name."""
        return f"{type(self).__name__}({self.name!r})"

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[T]:
        """Return a call with these arguments: a payload for `write`, `publish` and all else that takes one.

        Arguments that are left out get their defaults where the task runs. ConfigError if the function does not take
        them; CodecError, with place and type, for one that would not come back as it is.

        >>> send.call("ada").arguments
        {'to': 'ada'}
        >>> send.call(whom="ada")
        Traceback (most recent call last):
            ...
        shardq.errors.ConfigError: ...
        """
        found: Call[T] = self._call(self.name, self.signature.bound(args, kwargs))
        return found


class BatchTask(Task[[list[X]], None, R], Generic[X, R]):
    """A function whose calls workers collect. Called itself it is that function, which takes a list.

    It takes `size` members at most, and the first of them waits for `wait` seconds at most.

    >>> tasks = Tasks("search")
    >>> @tasks.batch(size=50)
    ... def index(documents: list[str]) -> None:
    ...     print("index", len(documents))
    >>> index(["first", "second"])
    index 2
    """

    def __init__(
        self,
        function: Callable[[list[X]], R],
        name: str,
        retries: Retries,
        time_limit: float | None,
        size: int,
        wait: float,
    ) -> None:
        super().__init__(function, name, retries, time_limit, is_batch=True)
        self.size: int = whole(f"size of {self.where}", size, 1, MAX_BATCH)
        self.wait: float = seconds(f"wait of {self.where}", wait, 0, MAX_WAIT)
        (self.parameter,) = self.signature.types

    def call(self, member: X, /) -> Call[None]:  # type: ignore[override]  # a call has one member of the list
        """Return a call with one *member* of the list that the function takes.

        CodecError for one that would not come back as it is.

        >>> index.call("first").arguments
        {'documents': 'first'}
        """
        return cast("Call[None]", self._call(self.name, self.signature.sent({self.parameter: member})))


def _check_kind(function: object, where: str) -> None:
    """ConfigError for what would be called, and do nothing."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"{where} has a yield, so calling it runs nothing of it: let it return what it has")
    if isinstance(function, type):
        raise ConfigError(f"{where} is a class: a task is made of a function")
    if isinstance(function, FunctionType) and _is_coroutine_of_another(function):
        raise ConfigError(
            f"{where} is an async def below a decorator that made a plain function of it, which would return a "
            "coroutine that nobody awaits: let the decorator return an async def, or leave it out"
        )


def _is_coroutine_of_another(function: FunctionType) -> bool:
    return not inspect.iscoroutinefunction(function) and inspect.iscoroutinefunction(inspect.unwrap(function))


def _place(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(function)
