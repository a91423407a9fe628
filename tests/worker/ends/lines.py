"""The lines of the table "What happens to a job?" in docs/worker.md, each as its first cell says it."""

from __future__ import annotations

from typing import Final

RETURNS: Final = "returns"
AWAITABLE: Final = "returns something that nobody awaited"
NACK: Final = "raises `Nack(delay)`"
REJECT: Final = "raises `Reject(reason)`"
ERROR: Final = "raises any other error, also `SystemExit` and `asyncio.CancelledError`"
ODD_ERROR: Final = "raises an error that cannot be looked at"
PARTLY: Final = "raises `shardq.tasks.PartlyFailed`, in a [batch](batches.md)"
NOT_AGAIN: Final = "raises what `retry_on` leaves out, or `give_up_on` names"
BACKOFF: Final = "raises, and its backoff fails or returns no time"
MIDDLEWARE: Final = "has middleware around it"
LATE_WAIT: Final = "awaits longer than its `time_limit`"
LATE_THREAD: Final = "runs longer in a thread, or ignores that it was cancelled"
LATE_LOOP: Final = "blocks the event loop"
LATE_CHILD: Final = "runs longer in a child process"
DIES: Final = "dies with its child process"
STOPPED: Final = "is stopped: the worker's grace is over"
LOST: Final = "loses its lease, or is cancelled"
OWN: Final = "settles its message by itself"
ON_ERROR: Final = "fails, and `on_error` raises or hangs"
ON_DEAD: Final = "is a dead letter, and `on_dead` raises or hangs"
LIFESPAN: Final = "has a lifespan that raises"
ARGUMENTS: Final = "has wrong arguments, as a call of a [task](tasks.md)"
KILLED: Final = "is killed with its worker"
