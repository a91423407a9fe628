"""`Tasks`: the tasks of one queue, which web and worker both import."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    nullcontext,
)
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from typing import Any, Generic, ParamSpec, Protocol, TypedDict, TypeVar, Unpack, cast, overload

from shardq.arguments import check_known, check_name, flag, function, iterable, shown, text
from shardq.backoff import Backoff
from shardq.errors import ConfigError
from shardq.model import QueueConfig
from shardq.model.queue_settings import QueueSettings
from shardq.model.schedule import CatchUp, FixedSchedule
from shardq.model.timetable import Timetable, timetable
from shardq.tasks.calls import Manner, OnError, TasksCalls
from shardq.tasks.schedules import SHARD_KEY, TaskSchedules, interval
from shardq.tasks.task import BatchTask, Retries, Task
from shardq.worker.application import Application
from shardq.worker.application import Lifespan as Opened
from shardq.worker.call import CallOf, Environment, is_async

P = ParamSpec("P")
T = TypeVar("T")
X = TypeVar("X")
R_co = TypeVar("R_co", covariant=True)

Middleware = Callable[[Callable[[Any], Any], Any], Any]
"""A function, or a coroutine function, of the next one and the delivery."""
Lifespan = Callable[[], AbstractAsyncContextManager[R_co]] | Callable[[], AbstractContextManager[R_co]]


class TasksSettings(QueueSettings, total=False):
    """The keyword arguments of `Tasks` besides its lifespan: its own ones, and those of `Client.queue`."""

    middleware: Sequence[Middleware]
    error_text: bool
    on_error: OnError | None


class TaskOptions(TypedDict, total=False):
    """The keyword arguments of `Tasks.task`, which `Tasks.batch` takes, too."""

    name: str | None
    retries: int | None
    backoff: Backoff | None
    retry_on: tuple[type[BaseException], ...]
    give_up_on: tuple[type[BaseException], ...]
    time_limit: float | None


class TaskDecorator(Protocol):
    """The decorator of `Tasks.task(...)`: it makes a task of a function."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, T]], /) -> Task[P, T, Coroutine[Any, Any, T]]: ...
    @overload
    def __call__(self, function: Callable[P, T], /) -> Task[P, T, T]: ...


class BatchDecorator(Protocol):
    """The decorator of `Tasks.batch(...)`: it makes a task of a function that takes a list."""

    @overload
    def __call__(
        self, function: Callable[[list[X]], Coroutine[Any, Any, None]], /
    ) -> BatchTask[X, Coroutine[Any, Any, None]]: ...
    @overload
    def __call__(self, function: Callable[[list[X]], None], /) -> BatchTask[X, None]: ...


class Tasks(Application, Generic[R_co]):
    """The tasks of the queue *queue*, whose settings are those of `Client.queue`.

    *lifespan* is a function that returns a context manager, plain or async: each worker process enters it before its
    first message and leaves it after the last, and `resources` is what it yields. Each of *middleware* is a function of
    the next one and the delivery, plain or async, and is called around each task: `call_next(delivery)`, or
    `await call_next(delivery)` in an async one, runs the task and returns its result, or raises its error. The error of
    a task is stored with its class and its frames, and with *error_text* also with its text, which may hold a part of
    the payload. *on_error* is a plain function of the delivery and the error, as error reporters want it: it is called
    at once, in a thread, when a task has raised anything but Nack and Reject, took longer than it may, or ended its
    process. It should be quick, and what it raises is logged. ConfigError for a bad setting. `queue_name` and
    `settings` are those of its queue.

    >>> from shardq import Client, Worker
    >>> tasks = Tasks("mails", max_deliveries=5)
    >>> @tasks.task(retries=3, time_limit=30)
    ... def send(to: str) -> None:
    ...     print("mail to", to, "by delivery", tasks.delivery.count)
    ...     worker.stop()
    >>> client = Client.from_url("redis://localhost:6379")
    >>> queue = client.queue(tasks)
    >>> job = queue.write(send.call("ada"), shard_key="acme")
    >>> worker = Worker(queue, tasks)
    >>> worker.run()
    mail to ada by delivery 1
    """

    @overload
    def __init__(
        self: Tasks[None], queue: str, *, lifespan: None = None, **settings: Unpack[TasksSettings]
    ) -> None: ...
    @overload
    def __init__(self, queue: str, *, lifespan: Lifespan[R_co], **settings: Unpack[TasksSettings]) -> None: ...
    def __init__(self, queue: str, *, lifespan: Any = None, **settings: Unpack[TasksSettings]) -> None:
        self.queue_name: str = check_name(queue)
        check_known("Tasks", settings, ("lifespan", *TasksSettings.__annotations__))
        self._middleware = [
            function("a middleware", each)
            for each in iterable("middleware", settings.pop("middleware", ()), "functions")
        ]
        error_text, on_error = flag("error_text", settings.pop("error_text", False)), settings.pop("on_error", None)
        if on_error is not None:
            function("on_error", on_error)
        self._delivery: ContextVar[Any] = ContextVar("delivery")
        self._manner = Manner(self._middleware, self._delivery.set, error_text, on_error)
        self.settings: QueueSettings = cast("QueueSettings", settings)
        self._config = QueueConfig(**self.settings)
        self._lifespan = lifespan
        self._module = sys._getframe(1).f_globals.get("__name__", "")
        self._by_name: dict[str, Task[Any, Any, Any]] = {}
        self._schedules = TaskSchedules()
        self._resources: Any = _NONE

    def __repr__(self) -> str:
        """The queue, and how many tasks there are."""
        return f"Tasks({self.queue_name!r}, {len(self._by_name)} tasks)"

    def __reduce__(self) -> tuple[Any, ...]:
        """Name the variable that holds it, for a process of `run_in="processes"`. ConfigError if there is none."""
        there = vars(sys.modules.get(self._module, object)).items()
        if (name := next((name for name, value in there if value is self), None)) is None:
            raise ConfigError(f"{self!r} is no variable at the top of module {self._module!r}, which a process imports")
        return _tasks_in, (self._module, name)

    def __iter__(self) -> Iterator[Task[Any, Any, Any]]:
        """The tasks, in the order of their declarations."""
        return iter(self._by_name.values())

    def __len__(self) -> int:
        """How many tasks there are."""
        return len(self._by_name)

    def __bool__(self) -> bool:
        """Always true: it is no container."""
        return True

    def find(self, name: str) -> Task[Any, Any, Any] | None:
        """Return the task of this name, if there is one. ConfigError if the name is no text.

        >>> tasks.find("__main__.send")
        Task('__main__.send')
        """
        return self._by_name.get(text("name", name))

    @property
    def resources(self) -> R_co:
        """The value that the lifespan yielded in this worker process. ConfigError outside of one."""
        if self._resources is _NONE:
            raise ConfigError(
                "there are resources only in a worker, while its lifespan lasts: pass them to a test's call"
            )
        return cast("R_co", self._resources)

    @property
    def delivery(self) -> Any:
        """The delivery that the running task is called for. ConfigError outside of a task."""
        try:
            return self._delivery.get()
        except LookupError:
            raise ConfigError("there is a delivery only while a worker runs a task") from None

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, T]], /) -> Task[P, T, Coroutine[Any, Any, T]]: ...
    @overload
    def task(self, function: Callable[P, T], /) -> Task[P, T, T]: ...
    @overload
    def task(self, **options: Unpack[TaskOptions]) -> TaskDecorator: ...
    def task(self, *functions: Any, **options: Any) -> Any:
        """Make a task of a function, `async def` or plain: `@tasks.task`, or `@tasks.task(retries=3)`.

        - `name`: what it is called in messages; its module and name by default. Producers in other languages use it.
        - `retries`: how often it is tried once more, so 3 means at most 4 deliveries, also of those whose lease ended;
          by default as often as the queue's `max_deliveries` allows. Then its message is a dead letter.
        - `backoff`: how many seconds until the next try, by the number of failures; the worker's by default.
        - `retry_on`, `give_up_on`: the errors after which it is tried again (all by default), and those after which its
          message is a dead letter at once. After TimeLimit (a TimeoutError) and ProcessDied it is tried again whatever
          `retry_on` says, unless `give_up_on` names them.
        - `time_limit`: seconds after which it has failed.

        ConfigError for a function that cannot be called by messages, naming it.

        >>> @tasks.task(name="orders.pay", retries=2, give_up_on=(ValueError,))
        ... async def pay(order: int) -> str:
        ...     return f"paid {order}"
        >>> await pay(7)
        'paid 7'
        """
        declare = self._declared(Task, options)
        return declare(*functions) if functions else declare

    def batch(self, *, size: int = 100, wait: float = 0.5, **options: Unpack[TaskOptions]) -> BatchDecorator:
        """Make a task of a function that takes a list: `call` takes one of its members, and a worker collects them.

        The function gets up to *size* at once, and the first of them waits up to *wait* seconds for the others. Each is
        settled by itself: if the function returns, all are done; what it raises all have failed with, but
        `PartlyFailed` names those that have. The other options are those of `task`. ConfigError as of `task`.

        >>> @tasks.batch(size=50, wait=0.2)
        ... def index(documents: list[str]) -> None:
        ...     print("index", documents)
        >>> call = index.call("first")
        >>> index(["first", "second"])
        index ['first', 'second']
        """
        return cast("BatchDecorator", self._declared(BatchTask, options, size=size, wait=wait))

    def _declared(self, kind: type[Task[Any, Any, Any]], options: Mapping[str, Any], **more: Any) -> Any:
        check_known("batch" if more else "task", options, (*TaskOptions.__annotations__, *more))

        def declare(function: Callable[..., Any]) -> Task[Any, Any, Any]:
            how = dict(options)  # the decorator may be used again
            name, time_limit = how.pop("name", None), how.pop("time_limit", None)
            return self._add(kind(function, _name_of(function, name), Retries(**how), time_limit, **more))

        return declare

    def cron(
        self,
        line: str,
        *,
        tz: str = "UTC",
        shard_key: str | bytes = SHARD_KEY,
        catch_up: CatchUp = "skip",
        name: str | None = None,
    ) -> TaskDecorator:
        """Call a task at the times of a cron *line* in the zone *tz*: a plain function becomes one, too.

        Workers of the queue write the call for *shard_key*, once each time, and with it the header "slot", the time
        that it is for. *catch_up* says what becomes of times for which no worker was there: "skip", "once" (the last
        one is called), "all" (the last 100 are). A task that has several schedules gives all but one a *name*.

        ConfigError, naming the function, for a bad line or zone, and for parameters without defaults.

        >>> @tasks.cron("0 8 * * 1-5", tz="Europe/Paris")
        ... def digest(kind: str = "daily") -> None:
        ...     print("digest", kind)
        >>> digest()
        digest daily
        """
        return self._scheduled(partial(timetable, line, tz, None), shard_key, catch_up, name)

    def every(
        self,
        *,
        days: int = 0,
        hours: int = 0,
        minutes: int = 0,
        seconds: int = 0,
        shard_key: str | bytes = SHARD_KEY,
        catch_up: CatchUp = "skip",
        name: str | None = None,
    ) -> TaskDecorator:
        """Call a task at each multiple of this time since 1970, in whole seconds; otherwise as `cron`.

        So `every(hours=6)` is 0:00, 6:00, 12:00 and 18:00 UTC, whenever the workers were started. ConfigError as of
        `cron`.

        >>> @tasks.every(minutes=5)
        ... def sweep() -> None:
        ...     print("swept")
        >>> sweep()
        swept
        """
        times = partial(timetable, None, "UTC", interval(days, hours, minutes, seconds))
        return self._scheduled(times, shard_key, catch_up, name)

    def _scheduled(
        self, times: Callable[[], Timetable], shard_key: str | bytes, catch_up: CatchUp, name: str | None
    ) -> TaskDecorator:
        def declare(function: Any) -> Any:
            is_task = isinstance(function, Task)
            task: Any = function if is_task else Task(function, _name_of(function, None), Retries(), None)
            if is_task and self._by_name.get(task.name) is not task:
                raise ConfigError(f"{task.where} is no task of {self!r}: only these can be scheduled here")
            self._schedules.add(task, times, shard_key, catch_up, name)
            return task if is_task else self._add(task)

        return cast("TaskDecorator", declare)

    def schedules(self) -> Mapping[str, Sequence[FixedSchedule]]:
        """Return the schedules of these tasks, by the name of their queue."""
        return {self.queue_name: self._schedules.all()}

    def calls(self, environment: Environment) -> CallOf:
        """Return what messages call: each task by its name."""
        return TasksCalls(self._by_name, self._manner, environment)

    def task_names(self, queue: str) -> Sequence[str]:
        """Return the names of the tasks."""
        return [*self._by_name]

    @property
    def is_async(self) -> bool:
        """Whether a task or a middleware is async, or a task waits in an event loop for others of its batch."""
        return any(task.is_async or task.is_batch for task in self) or any(map(is_async, self._middleware))

    def lifespans(self) -> Sequence[Opened]:
        """Return the lifespan, which also gives its `resources`."""
        lifespan = nullcontext() if self._lifespan is None else self._lifespan()
        if isinstance(lifespan, AbstractContextManager):
            return [self._during(lifespan)]
        return [self._during_async(lifespan)]

    @contextmanager
    def _during(self, lifespan: AbstractContextManager[Any]) -> Iterator[None]:
        with lifespan as resources:
            self._resources = resources
            try:
                yield
            finally:
                self._resources = _NONE

    @asynccontextmanager
    async def _during_async(self, lifespan: AbstractAsyncContextManager[Any]) -> AsyncIterator[None]:
        async with lifespan as resources:
            with self._during(nullcontext(resources)):
                yield

    def check_forks(self) -> None:
        """ConfigError unless child processes can run its tasks."""
        if (batch := next((task for task in self if task.is_batch), None)) is not None:
            raise ConfigError(f"{batch.where} takes a batch, and a child process has one message at a time")
        if (other := next((task for task in self if task.is_async), None)) is not None:
            raise ConfigError(f"{other.where} is async: it needs run_in='threads', since a child has no event loop")
        if any(map(is_async, self._middleware)):
            raise ConfigError("a middleware is async: it needs run_in='threads', since a child has no event loop")

    def _add(self, task: Task[Any, Any, Any]) -> Task[Any, Any, Any]:
        if (other := self._by_name.get(task.name)) is not None:
            raise ConfigError(f"two tasks are called {task.name!r}: {other.where} and {task.where}; give one a name")
        task.retries.check_deliveries(task.where, self.queue_name, self._config.max_deliveries)
        self._by_name[task.name] = task
        return task


_NONE: Any = object()


def _tasks_in(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def _name_of(function: Callable[..., Any], name: str | None) -> str:
    if not callable(function):
        raise ConfigError(f"a task is made of a function, not of {shown(function)}; a name is given as name=...")
    if isinstance(function, partial):
        raise ConfigError(
            f"a task is made of a function, not of a functools.partial of {shown(function.func)}: define a function "
            "that calls it, whose parameters have types"
        )
    if name is not None:
        return name
    if not hasattr(function, "__qualname__"):
        raise ConfigError(f"{shown(function)} has no name of its own: give the task one, as name=...")
    return f"{function.__module__}.{function.__qualname__}"
