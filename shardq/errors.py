"""Every error that shardq raises, and what to do about it.

::

    ShardqError
    ├── ConfigError (ValueError)        a setting, name or argument is wrong: fix the call
    │   ├── ExtraMissing (ImportError)  a package of an extra is not installed: the text says how to get it
    │   ├── NotHere (ImportError)       this system lacks what a part is built on: the text says what
    │   ├── PatternError                a topic or a pattern is wrong
    │   └── QueueMissing                there is no such queue, and this call does not create one
    ├── CodecError (ValueError)         a payload cannot be encoded or decoded
    ├── Empty                           nothing to read before the deadline: read again
    ├── QueueNotEmpty                   a queue that is to be deleted holds messages: drain it, or say how many
    ├── QueueFull                       a bound of the queue is reached: slow down, retry later; see .bound
    ├── UniqueConflict                  another message has the unique key; see .message_id
    ├── Unrouted                        no pattern matches the topic
    ├── NotAvailable                    what was asked of a message is not there: an endpoint for status catches this
    │   ├── MessageNotFound             no waiting message has this id
    │   ├── ScheduleNotFound            no stored schedule has this name
    │   ├── NoResult                    the message has no result, and will have none
    │   │   └── MessageDead             it became a dead letter; see .reason
    │   └── ResultPending (TimeoutError)    the message is not done yet: ask again
    ├── LeaseLost                       the delivery is not yours any more: drop the work
    │   └── MessageCancelled            the message was cancelled: drop the work
    ├── ProcessDied                     a handler's child process ended before it: the message is delivered again
    ├── PipelineFailed                  a Spark job failed; its rows so far stay
    ├── MessageRefused                  an edge producer's messages were not stored; see .reasons and .ids
    ├── ClosedError                     the client was closed, or used from another event loop
    ├── SpoolFull                       an edge producer's spool or disk is full: slow down, or make room
    ├── SpoolDamaged                    the file is no spool, or cannot be read: move it away
    └── BackendError                    Redis refused, or could not be reached
        ├── BackendTimeout (TimeoutError)   no answer in time, and nothing was changed
        ├── OutcomeUnknown              the call may or may not have happened
        │   └── DurabilityUnknown       it happened, but too few replicas confirmed it; see .result
        ├── PartlyDone                  a call on many things failed after some were done; see .done
        ├── PartlyPublished             some of the queues that a topic goes to were not written to; see .results
        ├── PartlyWritten               some messages of a batch were not written; see .results
        ├── OutOfMemory                 Redis is full: reads and acks go on, writes wait
        └── ServerUnfit                 the server's version or settings would lose messages

Messages never contain a payload, a lease token or a password.
"""

from __future__ import annotations

from collections.abc import Sequence


def _again(kind: type[ShardqError], args: tuple[object, ...]) -> ShardqError:
    """Make an error without its `__init__`, which may take more than the text that is in *args*."""
    return kind.__new__(kind, *args)


class ShardqError(Exception):
    """The root of every error that shardq raises."""

    def __reduce__(self) -> tuple[object, ...]:
        """Be copied, and told to another process, with all that it holds."""
        return _again, (type(self), self.args), vars(self)


class ConfigError(ShardqError, ValueError):
    """A name, setting or argument is wrong; nothing was sent to Redis.

    `index` is which message of a batch is wrong, counted from 0; None where it is none.
    """

    index: int | None = None


class ExtraMissing(ConfigError, ImportError):
    """A module or a call needs packages that an extra of shardq brings, and one of them is not installed."""


class NotHere(ConfigError, ImportError):
    """A module or a call needs something that this system lacks, such as file locks of POSIX on Windows."""


class PatternError(ConfigError):
    """A topic or pattern is not valid: it has an empty word, a forbidden character, or is too long."""


class QueueMissing(ConfigError):
    """There is no such queue: its name is mistyped, or nobody has created it yet.

    A client with settings for a queue creates it by its first write or read. `len`, `stats` and `dead` of such a client
    say 0 until then, or nothing; all other calls that only look at a queue, or change it, raise this error.
    """


class QueueNotEmpty(ShardqError):
    """The queue was not deleted, since it holds other messages than the caller expects."""


class CodecError(ShardqError, ValueError):
    """A payload could not be encoded or decoded. `Delivery.body` still has the bytes of one that was read.

    `index` is which message of a batch cannot be encoded, counted from 0; None where it is none. `is_of_read` says
    whether it is a payload that was read, and that cannot be decoded.
    """

    index: int | None = None
    is_of_read: bool = False


class Empty(ShardqError):
    """No message could be delivered before the deadline of a read.

    `unreachable` has the numbers of the partitions that did not answer: what they have is not known. A queue without
    partitions fails in place of that.
    """

    unreachable: tuple[int, ...] = ()


class QueueFull(ShardqError):
    """One of the queue's bounds has no place for a message; it was not written.

    `bound` names the setting, such as "max_len", "max_dedup" or "max_backlog", and `limit` is its value (of a queue
    with partitions the part of one). `used` is how much of it the shard key has (with parents, the parent), `others`
    how much all others have; None where that is not known.
    `retry_after` is in how many seconds there may be more room by itself; None where that is up to the workers.
    """

    def __init__(
        self,
        message: str,
        *,
        bound: str = "",
        limit: int | None = None,
        used: int | None = None,
        others: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.bound, self.limit, self.used, self.others, self.retry_after = bound, limit, used, others, retry_after


class UniqueConflict(ShardqError):
    """Another message, `message_id`, has the unique key and is not done; nothing was written."""

    def __init__(self, message: str, message_id: str) -> None:
        super().__init__(message)
        self.message_id = message_id


class Unrouted(ShardqError):
    """No queue is bound to a pattern that matches the topic, or all that are, are gone; nothing was written."""


class NotAvailable(ShardqError):
    """The state or result of a message is not there, or not yet. Endpoints that tell of messages catch this class."""


class MessageNotFound(NotAvailable):
    """No message with this id is waiting, delayed or in flight."""


class NoResult(NotAvailable):
    """A message has no result and will have none: it was removed, its result was not kept, or was kept long enough."""


class ScheduleNotFound(NotAvailable):
    """The queue has no stored schedule of this name."""


class MessageDead(NoResult):
    """A message became a dead letter, so it has no result. `reason` says why; a redrive may still bring one."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class ResultPending(NotAvailable, TimeoutError):
    """A message was not done when the time to wait for its result was over."""


class LeaseLost(ShardqError):
    """The lease ended, or the delivery was settled already. The call changed nothing.

    Stop working on the message: another consumer has it, had it, or will get it.
    """


class MessageCancelled(LeaseLost):
    """The message was cancelled while it was in flight; stop working on it."""


class ProcessDied(ShardqError):
    """The child process of a handler ended before the handler did; the text says how it ended.

    No call raises it: it is what the handler failed with, for an error reporter and as a message's last error.
    """

    untraced: bool = True
    """For the parts of shardq: the traceback would only show where this process waited for the child."""


class ClosedError(ShardqError):
    """The client was closed, or belongs to another event loop; make a new one."""


class PipelineFailed(ShardqError):
    """A Spark job failed. The rows that it wrote so far stay. The cause is chained."""


class MessageRefused(ShardqError):
    """Messages of an edge producer were refused, found damaged, or dropped for newer ones: nobody stored them.

    `reasons` says how many for each reason, `ids` has the first ten, and `reason` and `text` are those of one.
    `shardq edge refused` shows all that are kept, and `shardq edge resend` lets them wait again.
    """

    def __init__(self, message: str, reasons: dict[str, int], ids: Sequence[str], text: str) -> None:
        super().__init__(message)
        self.reasons, self.ids, self.text = reasons, list(ids), text

    @property
    def reason(self) -> str:
        """The reason of most."""
        return max(self.reasons, key=lambda reason: self.reasons[reason])


class SpoolFull(ShardqError):
    """An edge producer's spool is full, or its disk; nothing was added. Earlier messages are still delivered."""


class SpoolDamaged(ShardqError):
    """A file is no spool of this version of shardq, is damaged, or was opened before a fork; nothing was added."""


class BackendError(ShardqError):
    """Redis refused the call, or could not be reached. The cause is chained."""


class BackendTimeout(BackendError, TimeoutError):
    """Redis gave no answer before the caller's deadline; nothing was changed."""


class OutcomeUnknown(BackendError):
    """No answer came after sending: the call may or may not have been executed."""


class DurabilityUnknown(OutcomeUnknown):
    """The call was executed, but fewer replicas than requested confirmed it in time.

    `result` is what the call would have returned. A failover now could lose the change.
    """

    def __init__(self, message: str, result: object) -> None:
        super().__init__(message)
        self.result = result


class PartlyWritten(BackendError):
    """Only a part of a batch was written.

    `results` has one entry per message, in order: its id, or the error with which its write ended. For a writer it has
    the errors only, at most 1,000 of them.
    """

    def __init__(self, results: Sequence[str | ShardqError], first: ShardqError, text: str = "") -> None:
        failed = sum(1 for result in results if isinstance(result, ShardqError))
        text = text or f"{failed} of {len(results)} messages were not written for certain"
        super().__init__(f"{text}; the first error: {first}")
        self.results: list[str | ShardqError] = list(results)


class PartlyDone(BackendError):
    """A call on many things failed when `done` of them were done; its cause says why. Make it again for the others."""

    def __init__(self, message: str, done: int) -> None:
        super().__init__(message)
        self.done = done


class PartlyPublished(BackendError):
    """A message was written to some of the queues that its topic goes to.

    `results` has for each queue that is not gone, by name, the id, or the error with which the write ended.
    """

    def __init__(self, results: dict[str, str | ShardqError], first: ShardqError) -> None:
        failed = sum(1 for result in results.values() if isinstance(result, ShardqError))
        super().__init__(f"{failed} of {len(results)} queues were not written to for certain; the first error: {first}")
        self.results = results


class OutOfMemory(BackendError):
    """Redis reached `maxmemory` and refused the whole write. Reads and acks still work."""


class ServerUnfit(BackendError):
    """The server is too old, or its settings (eviction, durability) would lose messages."""
