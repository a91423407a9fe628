"""The tasks of several queues, for one worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardq.arguments import check_name, of_type
from shardq.errors import ConfigError
from shardq.model import DeliveryView
from shardq.model.schedule import FixedSchedule
from shardq.tasks.finding import name_in
from shardq.tasks.tasks import Tasks
from shardq.worker.application import Application, Lifespan
from shardq.worker.call import CallOf, Environment, MessageCall


class Several(Application):
    """The tasks that one worker of several queues runs, each with `Tasks` of its own.

    A call is looked for in the `Tasks` of its queue, then in the others. ConfigError for two of one queue.

    >>> from shardq import Client, Worker
    >>> reports, mails = Tasks("reports"), Tasks("mails")
    >>> client = Client.from_url("redis://localhost:6379")
    >>> worker = Worker({client.queue(reports): 3, client.queue(mails): 1}, Several(reports, mails))
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

    def calls(self, environment: Environment) -> CallOf:
        """Return what messages call: a task of their queue, or of the others."""
        own = self._tasks.get(environment.queue) or next(iter(self._tasks.values()))
        every = [own, *(each for each in self._tasks.values() if each is not own)]
        calls = {each.queue_name: each.calls(environment) for each in every}

        def call_of(delivery: DeliveryView) -> MessageCall:
            name = name_in(delivery)
            found = next((each for each in every if each.find(name) is not None), own)
            return calls[found.queue_name](delivery)

        return call_of

    def task_names(self, queue: str) -> Sequence[str]:
        """Return the names of the tasks of *queue*: those of others are seldom called there."""
        own = self._tasks.get(check_name(queue))
        return () if own is None else own.task_names(queue)

    @property
    def is_async(self) -> bool:
        """Whether anything of them needs an event loop."""
        return any(each.is_async for each in self._tasks.values())

    def lifespans(self) -> Sequence[Lifespan]:
        """Return all lifespans."""
        return [found for each in self._tasks.values() for found in each.lifespans()]

    def check_forks(self) -> None:
        """ConfigError: a child process does not know to which queue its message belongs."""
        raise ConfigError("child processes run the tasks of one queue: start a worker for each of the Tasks")

    def schedules(self) -> Mapping[str, Sequence[FixedSchedule]]:
        """Return the schedules of all tasks, by the names of their queues."""
        return {queue: found for each in self._tasks.values() for queue, found in each.schedules().items()}
