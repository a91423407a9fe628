# Generated from async_job.py by tests/house/twins.py. Do not change it: change that, run `make twins`.
"""`Job`, for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Self, TypeVar, cast

from shardq.errors import CodecError
from shardq.model import MessageStatus, Written
from shardq.model.unfit import Unfit
from shardq.ops.results.wait import result
from shardq.ops.settle.cancel import Cancelled

if TYPE_CHECKING:
    from shardq.client.queue import Queue
    from shardq.model.annotation import Annotation

T = TypeVar("T")


class Job(Written, Generic[T]):
    """The id of a call that was written, which also knows its queue and the type of its result.

    It is a `str` like the id of any message, so it can be kept, compared and sent as that.

    `is_new` is as of any `Written`.

    >>> from shardq.tasks import Tasks
    >>> tasks = Tasks("math", result_ttl=60)
    >>> @tasks.task
    ... def total(numbers: list[int]) -> int:
    ...     return sum(numbers)
    >>> client = Client.from_url("redis://localhost:6379")
    >>> queue = client.queue(tasks)
    >>> job = queue.write(total.call([1, 2]), shard_key="acme")
    """

    is_new: bool  # type: ignore[misc]  # of each: its class cannot know

    _queue: Queue
    _returns: Annotation

    @classmethod
    def of(cls, queue: Queue, message_id: str, returns: Annotation) -> Self:
        """Return the job with this id; its result is of the type that *returns* says.

        For the parts of shardq that write calls.
        """
        job = cls(message_id)
        job.is_new = getattr(message_id, "is_new", False)
        job._queue, job._returns = queue, returns
        return job

    @property
    def id(self) -> str:
        """The message's id, as plain text."""
        return str(self)

    def result(self, *, timeout: float | None = None) -> T:
        """Wait for the result, as `Queue.result` does, and return it as what the task's annotation says.

        CodecError if it is not of that type: another release of the task returned it.

        Errors as of `Queue.result`.

        >>> delivery = queue.read()
        >>> delivery.ack(result=3)
        >>> job.result(timeout=5)
        3
        """
        client = self._queue.client
        kept = client.run(result(self._queue.state, self, timeout))
        try:
            return cast("T", self._returns.received(client.codecs, kept.tag, kept.body))
        except Unfit as error:
            raise CodecError(f"the result is not of the type that the task declares: {error}") from None

    def status(self, *, timeout: float | None = None) -> MessageStatus:
        """Tell where the message is, as `Queue.status` does. QueueMissing if there is no such queue.

        >>> status = job.status()
        >>> status.state, status.task
        ('waiting', '__main__.total')
        """
        return self._queue.status(self, timeout=timeout)

    def cancel(self, *, by: str | None = None, note: str | None = None, timeout: float | None = None) -> Cancelled:
        """Remove the message if it waits, as `Queue.cancel` does. MessageNotFound as it does.

        >>> job.cancel(note="not needed any more")
        'removed'
        """
        return self._queue.cancel(self, by=by, note=note, timeout=timeout)
