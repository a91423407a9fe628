"""Django's `TaskResult` of what Redis knows of a message."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from django.conf import settings
from django.tasks import Task, TaskResult, TaskResultStatus
from django.tasks.base import TaskError
from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
from django.utils import timezone
from msgspec import structs

from shardq.codec import Codecs
from shardq.django.finding import find_error, known_task
from shardq.django.record import FAILED, READY, RUNNING, SUCCESSFUL, ResultRecord, record_in
from shardq.django.sent import SentTask, call_in
from shardq.model import MessageId
from shardq.protocol.ids import split
from shardq.protocol.standing import Whole

_STATUS: Final = {"in_flight": RUNNING, "dead": FAILED}
"""By where the message is; the others are READY."""
_DIED: Final = "shardq.errors.MessageDead"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptError(TaskError):
    """An error of a task, by its class's path in Redis: others may have written it there."""

    @property
    def exception_class(self) -> type[BaseException]:
        """The class. ValueError if it is none, or its module was not imported here: Django's own would import it."""
        found = find_error(self.exception_class_path)
        if found is None:
            raise ValueError(f"{self.exception_class_path!r} is no class of errors that was imported here")
        return found


def result_id(message_id: str, queue: str) -> str:
    """Return the id of a result, which says where the message is.

    >>> result_id("1732150000000-42-7", "default")
    '1732150000000-42-7:default'
    """
    return f"{message_id}:{queue}"


def when(ms: int) -> datetime | None:
    """Return a time as Django has it: None for 0, and naive if the project does without time zones."""
    if not ms:
        return None
    found = datetime.fromtimestamp(ms / 1000, UTC)
    return found if settings.USE_TZ else timezone.make_naive(found, timezone.get_default_timezone())


def new_result(task: Task, message_id: str, queue: str, alias: str, sent: SentTask) -> TaskResult:
    """Return the result of a call that was just written."""
    return _result(task, message_id, queue, alias, ResultRecord(task.module_path, READY, sent))


def running_result(task: Task, message_id: str, queue: str, alias: str, record: ResultRecord) -> TaskResult:
    """Return the result of a call that a worker runs."""
    return _result(_as_sent(task, queue, alias, record.sent), message_id, queue, alias, record)


def found_result(whole: Whole, queue: str, alias: str, codecs: Codecs, modules: tuple[str, ...]) -> TaskResult:
    """Return the result of a call of a task in *modules*, or in the apps, by what is known of its message.

    TaskResultDoesNotExist if that is not enough.
    """
    message_id = whole.status.message_id
    record = _known(whole, codecs)
    if record is None:
        raise TaskResultDoesNotExist(_why_none(whole, queue))
    task = known_task(record.path, modules)
    if task is None:
        raise TaskResultDoesNotExist(
            f"result {result_id(message_id, queue)} is of task {record.path!r}, not known here"
        )
    return running_result(task, message_id, queue, alias, record)


def _known(whole: Whole, codecs: Codecs) -> ResultRecord | None:
    """The state of a call. The message's place decides: the stored record may be from an earlier attempt."""
    state, kept = whole.status.state, record_in(codecs, whole.kept)
    if state == "done":
        return kept if kept and kept.status == SUCCESSFUL else None
    if state == "unknown":  # a dead letter that was deleted has left its note
        return kept if kept and kept.status == FAILED else None
    called = call_in(codecs, whole.tag, whole.body)
    if called is None:
        return None
    path, sent = called
    record = structs.replace(kept or ResultRecord(), path=path, sent=sent)
    if state == "dead":
        return record if record.status == FAILED else _died(record, whole)
    return structs.replace(record, status=_STATUS.get(state, READY), finished=0, value=None)


def _died(record: ResultRecord, whole: Whole) -> ResultRecord:
    """The end of a dead letter whose worker could not say why it failed: it has died, or the task took too long."""
    ended = round((whole.status.since or whole.status.time) * 1000)
    errors = (*record.errors, (_DIED, f"{whole.status.reason}\n"))
    return structs.replace(record, status=FAILED, finished=ended, errors=errors, value=None)


def _why_none(whole: Whole, queue: str) -> str:
    name, status = result_id(whole.status.message_id, queue), whole.status
    if status.state == "done":
        return f"result {name} was not kept ({status.reason or 'it is none of a Django task'})"
    if status.state == "unknown":
        return f"there is no result {name}: it was kept long enough, was cancelled or purged, or never was"
    return f"message {name} is no call of a Django task"


def _as_sent(task: Task, queue: str, alias: str, sent: SentTask | None) -> Task:
    """The task as it was enqueued."""
    after = sent.run_after if sent else None
    if (task.queue_name, task.backend, task.run_after) == (queue, alias, after):
        return task
    try:
        return replace(task, queue_name=queue, backend=alias, run_after=after)
    except InvalidTask:  # the settings have changed since
        return task


def _result(task: Task, message_id: str, queue: str, alias: str, record: ResultRecord) -> TaskResult:
    written = MessageId.parse(split(message_id)[0]).written_ms
    found = TaskResult(
        task=task,
        id=result_id(message_id, queue),
        status=TaskResultStatus[record.status],
        enqueued_at=when(written),
        # Two machines' clocks may differ: nothing happened before it was enqueued.
        started_at=when(record.started and max(written, record.started)),
        finished_at=when(record.finished and max(written, record.finished)),
        last_attempted_at=when(record.attempted and max(written, record.attempted)),
        args=record.sent.args if record.sent else [],
        kwargs=record.sent.kwargs if record.sent else {},
        backend=alias,
        errors=[KeptError(exception_class_path=path, traceback=text) for path, text in record.errors],
        worker_ids=[*record.workers],
    )
    update(found, _return_value=record.value)
    return found


def update(result: TaskResult, **values: Any) -> None:
    """Set fields of a result, which its users cannot."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


def show(result: TaskResult, record: ResultRecord) -> None:
    """Bring the result that a running task sees up to date."""
    fresh = _result(result.task, result.id.rpartition(":")[0], result.task.queue_name, result.backend, record)
    names = ("status", "errors", "started_at", "finished_at", "last_attempted_at", "worker_ids", "_return_value")
    update(result, **{name: getattr(fresh, name) for name in names})
