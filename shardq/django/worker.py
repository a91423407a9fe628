"""How workers run Django's tasks: `async def` ones in an event loop, plain ones in threads."""

from __future__ import annotations

import inspect
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, cast

import django
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import close_old_connections, connections
from django.tasks import Task, TaskContext, TaskResult, task_backends
from django.tasks.signals import task_finished, task_started
from msgspec.structs import replace

from shardq.client import AsyncDelivery, Delivery
from shardq.django.backend import Backend
from shardq.django.finding import find_task, load_tasks, loaded_tasks
from shardq.django.record import FAILED, ResultRecord, kept_of, record_in
from shardq.django.results import running_result, show
from shardq.django.sent import SentTask, as_json, sent_in
from shardq.drivers import Target
from shardq.errors import BackendError, ConfigError
from shardq.model import DeliveryView
from shardq.model.failed import is_a
from shardq.ops.inspect.status import whole_status
from shardq.ops.results.keep import keep
from shardq.partitions.over import of_message
from shardq.protocol.results import VALUE, KeptResult
from shardq.tasks import Task as OwnTask
from shardq.tasks import Tasks
from shardq.tasks.finding import Finder, judged, name_in, tries_of
from shardq.tasks.task import INTERRUPTED
from shardq.worker.call import CallOf, Environment, MessageCall
from shardq.worker.crossing import Crossing
from shardq.worker.guard import is_cancelled, raised_by
from shardq.worker.outcome import Failed, GiveBack, Nack, Reject, unfit
from shardq.worker.state import WorkerJob
from shardq.worker.trouble import CALL_TIMEOUT

log = logging.getLogger("shardq")
_WHERE: Final = ": workers know the modules named tasks of the apps, and those of OPTIONS['tasks']"
_TURNED_BACK: Final = (Nack, GiveBack)
"""The error that a task raises to be run later: no error of it."""


def _call(call: str) -> None:
    """The callee of a message, as far as its arguments allow."""


class Adapted(OwnTask[Any, Any, Any]):
    """One of Django's tasks as shardq knows them: its name, and how often it is tried."""

    def __init__(self, task: Task, backend: Backend) -> None:
        super().__init__(_call, task.module_path, backend.retries_of(task), None)
        self.task, self.function = task, task.func


class _Registry(dict[str, OwnTask[Any, Any, Any]]):
    """Finds tasks when they are first called: any module that was imported may have some."""

    def __init__(self, backend: Backend) -> None:
        super().__init__()
        self._backend = backend

    def get(self, name: str, default: Any = None) -> Any:
        """Return the task of this path."""
        found = super().get(name)
        if found is None and (task := find_task(name)) is not None:
            found = self[name] = Adapted(task, self._backend)
        return found or default


class DjangoTasks(Tasks[None]):
    """The tasks of a queue of a *backend*, for a worker; those of the first one by default.

    `tasks.emails` are those of the queue that Django calls so.
    """

    def __init__(self, backend: Backend, queue: str) -> None:
        names = backend.settings
        super().__init__(names.name_of(queue), **names.settings_of(queue))
        self.backend = backend
        self._by_name = _Registry(backend)
        load_tasks(names.modules)
        for task in loaded_tasks(names.modules):
            if (task.backend, task.queue_name) == (backend.alias, queue):
                self._by_name.get(task.module_path)

    def __getattr__(self, name: str) -> DjangoTasks:
        """Return the tasks of another queue."""
        backend = self.__dict__.get("backend")
        if backend is None or name not in backend.names:
            raise AttributeError(f"QUEUES of Django's settings have no {name!r}")
        return DjangoTasks(backend, name)

    def calls(self, environment: Environment) -> CallOf:
        """Return what all messages call."""
        call = DjangoCall(self, environment)
        return lambda _: call

    def task_names(self, queue: str) -> Sequence[str]:
        """Return none: all have one name for metrics."""
        return ()

    @property
    def is_async(self) -> bool:
        """Always: the state of a task is noted in an event loop."""
        return True

    def check_forks(self) -> None:
        """Refuse child processes."""
        raise ConfigError("Django's tasks run in one process, without run_in: plain ones run in its threads")


class DjangoCall(MessageCall):
    """Runs the task that a message calls. Its state is noted before and after."""

    name = None
    is_async = True
    where = "a task of Django's"

    def __init__(self, tasks: DjangoTasks, environment: Environment) -> None:
        super().__init__(environment)
        self._backend, self._tasks = tasks.backend, tasks._by_name
        self._finder, self._crossing = Finder(environment.clock, _WHERE), cast("Crossing", environment.crossing)
        self._worker = f"{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(4)}"
        target, wanted = self._crossing.queue.client._target, Target.parse(self._backend.settings.url)
        if target != wanted:
            log.warning("this worker reads %s, but Django's settings write to %s", target, wanted)

    def judged(self, delivery: DeliveryView, error: BaseException) -> BaseException:
        """Judge an end that came from outside; an `Attempt` has judged the task's own errors."""
        task = self._tasks.get(name_in(delivery)) if type(error) in INTERRUPTED else None
        return error if task is None else judged(task, error, delivery, with_text=True)

    async def run(self, job: WorkerJob) -> object:
        """Run what *job* calls, and return what is kept as its result. Raise what the worker makes of an error."""
        delivery = self._crossing.face(cast("Delivery", job.delivery))
        adapted: Any = self._tasks.get(name_in(delivery))
        sent = sent_in(self._finder.arguments(delivery, adapted)["call"])
        if sent is None:
            text = f"task {adapted.name!r} does not take its arguments: no call of Django's"
            raise unfit(text, "cannot decode")
        kept = await self._kept(delivery)
        if kept is not None and kept.kind == VALUE:
            return kept
        record = self._before(delivery, adapted, sent, kept).begun(self._worker, _now())
        await self._note(delivery, record)
        queue = delivery.queue.name.removeprefix(self._backend.settings.prefix)
        result = running_result(adapted.task, delivery.message_id, queue, self._backend.alias, record)
        attempt = Attempt(self._backend, adapted, delivery, sent, record, result)
        if inspect.iscoroutinefunction(adapted.task.func):
            await attempt.run_async()
        else:
            await self._crossing.in_hand(attempt.run)
        if attempt.outcome is not None:
            if not (is_a(attempt.outcome, _TURNED_BACK) or delivery.lost):
                await self._note(delivery, attempt.record)
            raise attempt.outcome
        config = delivery.queue.state.config
        if config.result_ttl is None:
            return None
        return kept_of(attempt.record, delivery.queue.client.codecs, config.max_result_size)

    async def _kept(self, delivery: AsyncDelivery) -> KeptResult | None:
        """Return the record of the deliveries before; after a redrive, which begins again, only a note."""
        if delivery.count == 1:
            return None
        queue = delivery.queue
        try:
            asked = of_message(
                queue.state,
                delivery.message_id,
                lambda state, inner: whole_status(state, inner, CALL_TIMEOUT),
            )
            whole = await queue.client.run(asked)
        except BackendError:
            return None
        is_value = whole.kept is not None and whole.kept.kind == VALUE
        return None if is_value and tries_of(delivery) == 1 else whole.kept

    def _before(
        self, delivery: AsyncDelivery, adapted: Adapted, sent: SentTask, kept: KeptResult | None
    ) -> ResultRecord:
        """Return what is known of earlier attempts. Reject if the last one failed for good, and did not come to it."""
        found = record_in(delivery.queue.client.codecs, kept)
        if found is None or found.path != adapted.name:
            return ResultRecord(adapted.name, sent=sent)
        if found.status == FAILED and tries_of(delivery) > 1:
            raise Reject(f"{found.errors[-1][0] if found.errors else 'it failed'}, as the delivery before noted")
        return replace(found, sent=sent)

    async def _note(self, delivery: AsyncDelivery, record: ResultRecord) -> None:
        """Keep what is known so far. That is for those who ask: without it the task runs anyway."""
        queue = delivery.queue
        config = queue.state.config
        if config.result_ttl is None:
            return
        kept = kept_of(record, queue.client.codecs, config.max_result_size)
        try:
            noted = [(delivery.received, kept)]
            op = of_message(queue.state, delivery.message_id, lambda state, _: keep(state, noted, CALL_TIMEOUT))
            await queue.client.run(op)
        except BackendError as error:
            log.warning("queue %r, message %s: no note is kept: %s", queue.name, delivery.message_id, error)


class Attempt:
    """One run of a task. `outcome` is the worker's view of an error, None after a success."""

    def __init__(
        self,
        backend: Backend,
        adapted: Adapted,
        delivery: AsyncDelivery,
        sent: SentTask,
        record: ResultRecord,
        result: TaskResult,
    ) -> None:
        self._sender, self._adapted, self._delivery = type(backend), adapted, delivery
        self.record, self._result = record, result
        context = [TaskContext(task_result=result)] if adapted.task.takes_context else []
        self._call: Callable[[], Any] = partial(adapted.task.func, *context, *sent.args, **sent.kwargs)
        self.outcome: BaseException | None = None

    def run(self) -> None:
        """Run a plain function, in a thread whose connections to databases are fit, as Django wants it of workers."""
        close_old_connections()
        try:
            task_started.send_robust(self._sender, task_result=self._result)
            try:
                is_over = self._note_success(self._call())
            except BaseException as error:  # noqa: BLE001 (SystemExit of a task is its failure, not the worker's end)
                is_over = self._note_failure(error)
            if is_over:
                task_finished.send_robust(self._sender, task_result=self._result)
        finally:
            close_old_connections()

    async def run_async(self) -> None:
        """Await a coroutine function. Its work in threads is done in one of its own, as a request's is."""
        async with ThreadSensitiveContext():
            try:
                await task_started.asend_robust(self._sender, task_result=self._result)
                try:
                    is_over = self._note_success(await self._call())
                except BaseException as error:
                    if is_cancelled(error):  # its lease is lost, or the worker ends
                        raise
                    is_over = self._note_failure(error)
                if is_over:
                    await task_finished.asend_robust(self._sender, task_result=self._result)
            finally:
                await sync_to_async(connections.close_all)()

    def _note_success(self, value: Any) -> bool:
        self.record = self.record.succeeded(as_json(value), _now())
        show(self._result, self.record)
        return True

    def _note_failure(self, error: BaseException) -> bool:
        """Note an error. Return whether it is the last one."""
        error = raised_by(error)
        outcome = self.outcome = judged(self._adapted, error, self._delivery, with_text=False)
        if is_a(outcome, _TURNED_BACK):
            return False
        most = self._delivery.queue.state.config.max_deliveries
        is_last = not is_a(outcome, Failed) or outcome.gives_up or tries_of(self._delivery) >= most
        self.record = self.record.failed(error, _now(), is_last=is_last)
        show(self._result, self.record)
        return is_last


def backend_of(alias: str) -> Backend:
    """Return the backend with this alias. ConfigError if it is none of shardq's."""
    try:
        found = task_backends[alias]
    except ImproperlyConfigured as error:
        raise ConfigError(str(error)) from error
    if not isinstance(found, Backend):
        raise ConfigError(
            f"TASKS[{alias!r}] of Django's settings is a {type(found).__name__}, not shardq.django.Backend"
        )
    return found


def first_tasks() -> DjangoTasks:
    """Return the tasks of the default backend's first queue, for `shardq worker`, which knows no settings yet."""
    try:
        if not apps.ready:
            django.setup()
    except ImproperlyConfigured as error:
        raise ConfigError(f"Django's settings: {error} For example, DJANGO_SETTINGS_MODULE=shop.settings") from error
    backend = backend_of("default")
    if not backend.names:
        raise ConfigError("QUEUES of Django's settings names no queue: use manage.py shardq_worker --queue NAME")
    return DjangoTasks(backend, backend.names[0])


def _now() -> int:
    """Ms since the epoch."""
    return time.time_ns() // 1_000_000
