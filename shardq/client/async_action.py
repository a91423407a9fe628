"""`AsyncAction`, for asyncio (`make twins` makes the one for threads)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardq.model import ActionStatus, Where
from shardq.model.action import ActionKind
from shardq.ops.operate import actions
from shardq.ops.queue.who import Who

if TYPE_CHECKING:
    from shardq.client.async_admin import AsyncRunner


class AsyncAction:
    """An action by a filter that was begun, or taken over. It runs while somebody waits for it, in this process.

    Others see it by `actions()` of the queue, and may stop it. If this process is silent for 30 s, they may take it
    over; then `wait` raises LeaseLost, and does nothing more.

    >>> client = AsyncClient.from_url("redis://localhost:6379")
    >>> queue = client.queue("jobs", create=True)
    >>> ids = await queue.write_many([("a", "acme"), ("b", "umbrella")])
    >>> action = await queue.cancel(Where(tenant="acme"))
    """

    def __init__(self, runner: AsyncRunner, running: actions.Running) -> None:
        self._runner, self._running = runner, running

    def __repr__(self) -> str:
        """Its id, and how far it is."""
        return f"AsyncAction({self.id!r}, {self.kind}, done={self.done:,})"

    @property
    def id(self) -> str:
        """Its id, by which others stop it or take it over."""
        return self._running.id

    @property
    def kind(self) -> ActionKind:
        """The kind of action."""
        return self._running.record.asked.kind

    @property
    def where(self) -> Where:
        """Which messages it is about."""
        return self._running.record.asked.where

    @property
    def done(self) -> int:
        """How many messages it has acted on, as far as this process knows."""
        return self._running.record.done

    @property
    def left(self) -> int | None:
        """About how many are to come; None while that is not known."""
        return self._running.left

    async def wait(self, timeout: float | None = None) -> ActionStatus:
        """Work on it until it is over, or for *timeout* seconds, and return how it is then. Call it again to continue.

        It is "failed" with a `problem` if the queue has no room for more messages. LeaseLost if another process took it
        over; ConfigError if this process waits for it already.

        >>> status = await action.wait(timeout=60)
        >>> status.state, status.done
        ('done', 1)
        """
        await self._runner.run(actions.work(self._running, timeout))
        return await self.status()

    async def status(self, *, timeout: float | None = None) -> ActionStatus:
        """Return how it is, as Redis has it. ConfigError when Redis has forgotten it.

        >>> status = await action.status()
        >>> status.state, status.done
        ('running', 0)
        """
        return await self._runner.run(actions.status(self._running, timeout))

    async def stop(
        self, *, by: str | None = None, note: str | None = None, timeout: float | None = None
    ) -> ActionStatus:
        """Stop it with its next piece: earlier pieces stay done. It is over then, and `wait` returns.

        *by* and *note* say in the journal who asked for it (by default this client) and why. ConfigError when Redis has
        forgotten it.

        >>> status = await action.stop(by="ada", note="wrong tenant")
        >>> status.state, status.done
        ('stopping', 0)
        """
        return await self._runner.run(actions.stop(self._running.state, self.id, timeout, Who(by, note)))
