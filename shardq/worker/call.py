"""The callee of a message: a handler, or a task with the middleware around it. The lane knows only these."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from shardq.clock import Clock
from shardq.errors import ProcessDied
from shardq.model import DeliveryView, QueueConfig
from shardq.model.annotation import Annotation
from shardq.worker.contexts import Fresh
from shardq.worker.outcome import TimeLimit

if TYPE_CHECKING:
    from shardq.worker.children import Children
    from shardq.worker.crossing import Crossing
    from shardq.worker.state import WorkerJob


class Environment(NamedTuple):
    """Where calls run: the name of their queue, and the worker's time limit.

    `fresh` returns a context for what runs apart. There is no `crossing` in a process without an event loop.
    """

    queue: str
    clock: Clock
    time_limit: float | None
    fresh: Fresh
    crossing: Crossing | None


class MessageCall:
    """The callee of messages. An async one runs in the event loop, a plain one in a thread: as its outermost layer is.

    `name` is the task's; '' for a handler, None if each message says it. `limit` is for how many seconds it may run:
    the shorter one of its own and the worker's.
    """

    name: str | None = ""
    is_async = False
    where = "the handler"
    returns: Annotation | None = None
    """The type of its results; None if there is no annotation."""

    def __init__(self, environment: Environment, limit: float | None = None) -> None:
        limits = [each for each in (limit, environment.time_limit) if each is not None]
        self.limit = min(limits, default=None)

    def run(self, job: WorkerJob) -> Any:
        """Call it for *job*. Return its result: an async one must be awaited."""
        raise NotImplementedError

    async def aside(self, judge: Callable[[], None]) -> None:
        """Call *judge*, which tells the program of an error of this async call: in a thread if that may take long."""
        judge()

    def tell(self, delivery: DeliveryView, error: BaseException) -> None:
        """Tell the program of an *error* of this call, once."""

    def judged(self, delivery: DeliveryView, error: BaseException) -> BaseException:
        """Return what the worker makes of an *error* of this call: a `Failed`, or the error itself."""
        return error


CallOf: TypeAlias = Callable[[DeliveryView], MessageCall]
"""Returns what a message calls. It looks at nothing but the name."""


class HandlerCall(MessageCall):
    """A handler, which takes the delivery."""

    def __init__(self, environment: Environment, handle: Callable[[Any], Any]) -> None:
        super().__init__(environment)
        self._handle, self.is_async = handle, is_async(handle)
        self._crossing: Any = environment.crossing

    def run(self, job: WorkerJob) -> Any:
        """Call the handler."""
        return self._handle(self._crossing.face(job.delivery) if self.is_async else job.delivery)


class ChildCall(MessageCall):
    """A call that runs in a child process, for which a thread waits. Its error was judged and reported there."""

    def __init__(self, call: MessageCall, children: Children, config: Callable[[], QueueConfig]) -> None:
        self._call, self._children, self._config = call, children, config
        self.limit, self.name = call.limit, call.name

    def run(self, job: WorkerJob) -> Any:
        """Let a child run it."""
        return self._children.run(job, self._config())

    def tell(self, delivery: DeliveryView, error: BaseException) -> None:
        """Report the end of the process, unless it was killed for something that is reported already."""
        if type(error) is TimeLimit or (type(error) is ProcessDied and not delivery.lost):
            self._call.tell(delivery, error)

    def judged(self, delivery: DeliveryView, error: BaseException) -> BaseException:
        """Judge what the child could not."""
        return self._call.judged(delivery, error) if type(error) in (TimeLimit, ProcessDied) else error


def is_async(function: object) -> bool:
    """Return whether *function* is an `async def`, or an object with such a `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
