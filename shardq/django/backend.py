"""`Backend`: Django's tasks become messages, and what is known of these becomes Django's results."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from django.core import checks
from django.tasks import DEFAULT_TASK_QUEUE_NAME, Task, TaskResult
from django.tasks.backends.base import BaseTaskBackend
from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist
from django.tasks.signals import task_enqueued
from django.utils import timezone

from shardq.client import Client, Queue
from shardq.django.declared import Declared, declared_of
from shardq.django.results import found_result, new_result
from shardq.django.sent import SentTask
from shardq.django.settings import BackendSettings, retries_of
from shardq.errors import ConfigError, MessageNotFound, QueueMissing
from shardq.model.call import IS_NAME
from shardq.ops.inspect.status import whole_status
from shardq.ops.write.outgoing import MAX_DELAY
from shardq.partitions.over import of_message
from shardq.tasks.task import Retries

MAX_ID: Final = 63
"""Characters of a result's id, as Django promises them to its users."""
_MAX_NUMBER_CHARACTERS: Final = 30
"""Characters of an id that are no shard key and no queue: `ms-number-o.` with up to 10**12 messages, and a colon."""
_DIGEST: Final = 12

_clients: dict[tuple[str, float], Client] = {}
_lock = threading.Lock()


class Backend(BaseTaskBackend):
    """Runs tasks in workers: `manage.py shardq_worker`. Its OPTIONS are those of docs/django.md.

    A call is a message, and an error of its task is final unless `retries` says otherwise. All calls may raise what
    shardq's clients do: BackendTimeout if Redis does not answer (nothing happened), OutcomeUnknown, QueueFull.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = False  # weights between queues do better: nothing starves

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self.names = list(params.get("QUEUES", [DEFAULT_TASK_QUEUE_NAME]))
        try:
            self.settings = BackendSettings.of(self.names, self.options)
        except ConfigError as error:
            raise InvalidTaskBackend(f"TASKS[{alias!r}]: {error}") from error
        self.supports_get_result = self.settings.common.get("result_ttl") is not None
        self._queues: dict[str, Queue] = {}

    def validate_task(self, task: Task) -> None:
        """Refuse what cannot be sent. InvalidTask says why."""
        super().validate_task(task)
        if not IS_NAME.fullmatch(task.module_path):
            raise InvalidTask(f"Task {task.module_path!r} has a path of more than 200 characters.")
        try:
            self.settings.name_of(task.queue_name)
            self.settings.check_retries(self.retries_of(task), task.queue_name, task.module_path)
        except ConfigError as error:
            raise InvalidTask(str(error)) from error
        declared = declared_of(task.func)
        if declared.shard_key is not None and declared.shard_key not in inspect.signature(task.func).parameters:
            raise InvalidTask(f"Task {task.module_path!r} has no argument {declared.shard_key!r} for its shard key.")

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        """Write the call, and return its result as of now. TypeError for arguments that are not JSON."""
        self.validate_task(task)
        result = self._write(task, args, kwargs)
        task_enqueued.send(type(self), task_result=result)
        return result

    async def aenqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        """Do as `enqueue`, in a thread of its own: no other one waits when Redis does not answer."""
        self.validate_task(task)
        result = await asyncio.to_thread(self._write, task, args, kwargs)
        await task_enqueued.asend(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """Return what is known of a call. TaskResultDoesNotExist also for a text that is no id."""
        if not self.supports_get_result:
            return super().get_result(result_id)
        message_id, _, queue = result_id.rpartition(":") if isinstance(result_id, str) else ("", "", "")
        if not message_id or (self.queues and queue not in self.queues):
            raise TaskResultDoesNotExist(f"there is no result {str(result_id)[:100]!r}")
        try:
            found = self.queue(queue)
            whole = found.client.run(of_message(found.state, message_id, whole_status))
        except (MessageNotFound, QueueMissing):
            raise TaskResultDoesNotExist(f"there is no result {result_id[:100]!r}") from None
        return found_result(whole, queue, self.alias, found.client.codecs, self.settings.modules)

    async def aget_result(self, result_id: str) -> TaskResult:
        """Do as `get_result`."""
        return await asyncio.to_thread(self.get_result, result_id)

    def check(self, **kwargs: Any) -> list[checks.CheckMessage]:
        """Warn of what is no error but hardly meant."""
        found = super().check(**kwargs)
        if self.names:
            return [*found]
        hint = "Name them in QUEUES, or name them to each worker: manage.py shardq_worker --queue NAME."
        text = f"TASKS[{self.alias!r}] allows any queue, so its workers cannot know which ones to read."
        return [*found, checks.Warning(text, hint=hint, id="shardq.W001")]

    def queue(self, name: str) -> Queue:
        """Return the queue that Django calls *name*, by a client that all threads share."""
        found = self._queues.get(name)
        if found is None:
            client = _client(self.settings.url, self.settings.timeout)
            found = client.queue(self.settings.name_of(name), create=True, **self.settings.settings_of(name))
            self._queues[name] = found
        return found

    def retries_of(self, task: Task) -> Retries:
        """Return how often a task is tried: as it was declared, or as OPTIONS say."""
        declared: Declared = declared_of(task.func)
        if declared.retries is None and declared.backoff is None:
            return self.settings.retries
        retries = self.settings.retries.retries if declared.retries is None else declared.retries
        return retries_of(retries, declared.backoff or self.settings.retries.backoff, task.module_path)

    def shard_key(self, task: Task, args: Any, kwargs: Any) -> str:
        """Return whose a call is: its argument of that name, or the task's own path if it has none.

        A long one is cut, with a digest at its end, since it may become a part of the result's id.
        """
        room = MAX_ID - _MAX_NUMBER_CHARACTERS - len(task.queue_name)
        value = self._value_of_key(task, args, kwargs)
        key = str(task.module_path if value in (None, "") else value)
        if len(quote(key, safe="", errors="replace")) <= room and key.isprintable():  # a lone surrogate is not
            return key
        digest = hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()[:_DIGEST]
        plain = "".join(each for each in key if each.isascii() and (each.isalnum() or each in "._-"))
        return f"{plain[: room - _DIGEST - 1]}~{digest}"

    def _value_of_key(self, task: Task, args: Any, kwargs: Any) -> Any:
        name = declared_of(task.func).shard_key or self.settings.shard_key
        if name is None or name in kwargs:
            return kwargs.get(name)
        parameters = [*inspect.signature(task.func).parameters][int(task.takes_context) :]
        return dict(zip(parameters, args, strict=False)).get(name)

    def _write(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        sent = SentTask.of(args, kwargs, task.run_after)
        delay = _delay(task)
        job = self.queue(task.queue_name).write(
            sent.call(task.module_path), shard_key=self.shard_key(task, sent.args, sent.kwargs), delay=delay
        )
        return new_result(task, str(job), task.queue_name, self.alias, sent)


def _delay(task: Task) -> float | None:
    if task.run_after is None:
        return None
    after = task.run_after if timezone.is_aware(task.run_after) else timezone.make_aware(task.run_after)
    delay: float = (after - datetime.now(UTC)).total_seconds()
    if delay > MAX_DELAY:
        raise InvalidTask("run_after must be within ten years.")
    return max(0.0, delay)


def _client(url: str, timeout: float) -> Client:
    """Return the client of this process for a server: Django makes a backend in each thread."""
    with _lock:
        found = _clients.get((url, timeout))
        if found is None:
            found = _clients[url, timeout] = Client.from_url(url, timeout=timeout)
        return found
