"""The tasks of several queues, for one worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any, TypeVar, cast

from shardq.arguments import of_type
from shardq.client import AsyncDelivery, AsyncQueue, Delivery
from shardq.clock import Clock
from shardq.errors import ConfigError
from shardq.model import DeliveryView
from shardq.model.schedule import FixedSchedule
from shardq.tasks.tasks import Tasks
from shardq.worker.application import Application, AsyncHandler, PlainHandler
from shardq.worker.contexts import Fresh
from shardq.worker.hands import Hands

H = TypeVar("H")


class Several(Application):
    """What one worker of several queues runs, each with `Tasks` of its own.

    ::

        AsyncWorker({client.queue(reports): 3, client.queue(mails): 1}, Several(reports, mails))

    A call is looked for in the `Tasks` of its queue, then in the others. ConfigError for two of one queue.
    """

    def __init__(self, *tasks: Tasks[Any]) -> None:
        self._tasks: dict[str, Tasks[Any]] = {}
        for each in tasks:
            of_type("tasks", each, Tasks, "Tasks")
            if each.queue_name in self._tasks:
                raise ConfigError(f"two Tasks are of queue {each.queue_name!r}: declare its tasks in one of them")
            self._tasks[each.queue_name] = each
        if not tasks:
            raise ConfigError("Several needs Tasks")

    def __repr__(self) -> str:
        """The queues, and how many tasks there are."""
        return f"Several({', '.join(self._tasks)}: {len(self)} tasks)"

    def __len__(self) -> int:
        """How many tasks there are."""
        return sum(map(len, self._tasks.values()))

    @property
    def has_plain_middleware(self) -> bool:
        """Whether a middleware is for a Worker."""
        return any(each.has_plain_middleware for each in self._tasks.values())

    @asynccontextmanager
    async def opened_async(self, jobs: AsyncQueue, hands: Hands, fresh: Fresh) -> AsyncIterator[AsyncHandler]:
        """Enter all lifespans, and yield the handler of an AsyncWorker."""
        async with AsyncExitStack() as stack:
            handlers = {
                each.queue_name: await stack.enter_async_context(each.opened_async(jobs, hands, fresh))
                for each in self._tasks.values()
            }

            async def handle(delivery: AsyncDelivery) -> object:
                return await handlers[self._of(delivery).queue_name](delivery)

            yield handle

    @contextmanager
    def opened(self, clock: Clock, fresh: Fresh) -> Iterator[PlainHandler]:
        """Enter all lifespans, and yield the handler of a Worker. ConfigError if anything of them is async."""
        with ExitStack() as stack:
            handlers = {
                each.queue_name: stack.enter_context(each.opened(clock, fresh)) for each in self._tasks.values()
            }

            def handle(delivery: Delivery) -> object:
                return handlers[self._of(delivery).queue_name](delivery)

            yield handle

    def check_forks(self) -> None:
        """ConfigError: a child process does not know of which queue its message is."""
        raise ConfigError("child processes run the tasks of one queue: start a worker for each of the Tasks")

    def schedules(self) -> Mapping[str, Sequence[FixedSchedule]]:
        """Return the schedules of all tasks, by the names of their queues."""
        return {queue: found for each in self._tasks.values() for queue, found in each.schedules().items()}

    def has_time_limits(self) -> bool:
        """Whether a task has a time limit of its own."""
        return any(each.has_time_limits() for each in self._tasks.values())

    def time_limit(self, delivery: DeliveryView) -> float | None:
        """Return that of the task that *delivery* calls."""
        return self._of(delivery).time_limit(delivery)

    def judged(self, delivery: DeliveryView, error: BaseException) -> BaseException:
        """Return what becomes of the task that *delivery* calls, by its own retries."""
        return self._of(delivery).judged(delivery, error)

    def tell(self, delivery: DeliveryView, error: BaseException) -> None:
        """Tell the program of an *error* of the task that *delivery* calls."""
        self._of(delivery).tell(delivery, error)

    def _of(self, delivery: DeliveryView) -> Tasks[Any]:
        own, name = self._tasks.get(cast("Delivery", delivery).queue.name), delivery.task
        if own is not None and own.find(name) is not None:
            return own
        every = [*self._tasks.values()]
        return next((each for each in every if each.find(name) is not None), own or every[0])
