"""Every error that shardq raises, and what the reader should do about it.

::

    ShardqError
    ├── ConfigError (ValueError)        a setting, name or argument is wrong: fix the call
    │   ├── PatternError                ... it is a topic or a pattern
    │   └── QueueMissing                there is no such queue, and this call does not create one
    ├── CodecError (ValueError)         a payload cannot be encoded or decoded
    ├── Empty                           nothing to read before the deadline: read again
    ├── QueueFull                       the queue is at its bound: slow down, retry later
    ├── Unrouted                        no pattern matches the topic
    ├── MessageNotFound                 no waiting message has this id
    ├── LeaseLost                       the delivery is not yours any more: drop the work
    │   └── MessageCancelled            ... because the message was cancelled
    ├── PipelineFailed                  a job of Spark's failed; what was done stays
    ├── ClosedError                     the client was closed, or used from another event loop
    └── BackendError                    Redis refused, or could not be reached
        ├── BackendTimeout (TimeoutError)   no answer in time, and nothing was changed
        ├── OutcomeUnknown              the call may or may not have happened
        │   └── DurabilityUnknown       ... it happened, but fewer replicas than asked hold it
        ├── PartlyPublished             some of the queues that a topic goes to were not written to; see .results
        ├── PartlyWritten               some messages of a batch were not written; see .results
        ├── OutOfMemory                 Redis is full: reads and acks go on, writes wait
        └── ServerUnfit                 the server's version or settings would lose messages

Messages never contain a payload, a lease token or a password.
"""

from __future__ import annotations


class ShardqError(Exception):
    """The root of every error that shardq raises."""


class ConfigError(ShardqError, ValueError):
    """A name, setting or argument is wrong; nothing was sent to Redis."""


class PatternError(ConfigError):
    """A topic or a pattern is none: an empty word, a character or a length that may not be."""


class QueueMissing(ConfigError):
    """There is no such queue; the first write or read creates it, an operator's call does not."""


class CodecError(ShardqError, ValueError):
    """A payload could not be encoded or decoded; `Delivery.body` still holds the bytes."""


class Empty(ShardqError):
    """Nothing became deliverable before the deadline of a read."""


class QueueFull(ShardqError):
    """The queue (or its dedup window) is at its configured bound; nothing was written."""


class Unrouted(ShardqError):
    """No queue is bound to a pattern that matches the topic; nothing was written."""


class MessageNotFound(ShardqError):
    """No message with this id is waiting, delayed or in flight."""


class LeaseLost(ShardqError):
    """The lease ended or was settled already; the call changed nothing.

    Stop working on the message: somebody else has it, had it, or will get it.
    """


class MessageCancelled(LeaseLost):
    """The message was cancelled while it was in flight; stop working on it."""


class ClosedError(ShardqError):
    """The client was closed, or belongs to another event loop; make a new one."""


class PipelineFailed(ShardqError):
    """A job of Spark's failed; what was done stays, and the cause is chained."""


class BackendError(ShardqError):
    """Redis refused the call or could not be reached; the cause is chained."""


class BackendTimeout(BackendError, TimeoutError):
    """Redis gave no answer before the caller's deadline; nothing was changed."""


class OutcomeUnknown(BackendError):
    """The connection broke after sending: the call may or may not have happened."""


class DurabilityUnknown(OutcomeUnknown):
    """The call happened, but fewer replicas than asked confirmed it in time.

    `result` is what the call returned; a failover now could lose it.
    """

    def __init__(self, message: str, result: object) -> None:
        super().__init__(message)
        self.result = result


class PartlyWritten(BackendError):
    """A batch was written in part.

    `results` has one entry per message, in order: its id, or the error that kept it from being written.
    """

    def __init__(self, results: list[str | ShardqError], first: ShardqError) -> None:
        failed = sum(1 for result in results if isinstance(result, ShardqError))
        super().__init__(f"{failed} of {len(results)} messages were not written for certain; the first error: {first}")
        self.results = results


class PartlyPublished(BackendError):
    """A message was written to some of the queues that its topic goes to.

    `results` has for each queue, by name, the id, or the error that kept it from being written there.
    """

    def __init__(self, results: dict[str, str | ShardqError], first: ShardqError) -> None:
        failed = sum(1 for result in results.values() if isinstance(result, ShardqError))
        super().__init__(f"{failed} of {len(results)} queues were not written to for certain; the first error: {first}")
        self.results = results


class OutOfMemory(BackendError):
    """Redis reached `maxmemory`; the write was refused whole, reads and acks still work."""


class ServerUnfit(BackendError):
    """The server is too old, or its settings (eviction, durability) would lose messages."""
