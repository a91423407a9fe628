"""`Handles`: the long actions that people began on this page, and on which this process works.

If the process ends, its actions stay in Redis, and after 30 s of silence another process may take them over. So a page
looks once after its start for actions of a page before it, and takes them over. It also takes over an action that a
screen shows and on which nobody works. It asks nothing while nobody looks and no action is under way.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from shardq.client import AsyncAction, AsyncClient
from shardq.client.async_partitions import AsyncPartAction
from shardq.dashboard import numbers
from shardq.dashboard.actions.look import queue_of
from shardq.dashboard.actions.progress import VIA_ONE, shown
from shardq.dashboard.actions.refused import MayHaveBegun
from shardq.dashboard.source import SceneSource
from shardq.errors import BackendError, ConfigError, LeaseLost, OutcomeUnknown, ShardqError
from shardq.model.action import ActionKind, ActionStatus
from shardq.model.where import Where
from shardq.ops.operate import actions, selection
from shardq.ops.operate.actions import Running
from shardq.ops.operate.selection import Bounds, Chosen, Search
from shardq.ops.queue.retry import is_denial
from shardq.ops.queue.state import QueueState
from shardq.ops.queue.steps import Op
from shardq.ops.queue.who import Who
from shardq.partitions import acts
from shardq.partitions.over import of_message, parts_of
from shardq.partitions.parts import Parts
from shardq.protocol.actions import LEASE

log = logging.getLogger("shardq.dashboard")

VIA_DASHBOARD: Final = "dashboard"
"""How an action is marked that was begun on a page."""
ALL_BOUNDS: Final = Bounds(0.0, 2**63, 2**63, "")
"""The bounds of a search before its action: all that is there."""
RETRY_SECONDS: Final = 2.0
"""Seconds after which an action continues when Redis did not answer."""
MAX_STOPS: Final = math.ceil(LEASE / RETRY_SECONDS)
"""Tries to stop an action that nobody can continue: after these it was silent for long enough."""
GLANCE: Final = LEASE / 6
"""Seconds between two looks at actions of a page that has ended perhaps."""
MAX_LOOKS: Final = 120
"""Looks for an action that perhaps began: ten minutes. So long Redis may be away."""
FRESH_SECONDS: Final = 1.0
"""Seconds for which the actions of a queue count as those of now."""


async def actions_of(source: SceneSource, queue: str) -> list[dict[str, Any]]:
    """Return the actions of a queue as a screen shows them, the newest first. NotThere if there is no such queue."""
    found = await numbers.of_queue(source, "actions", queue, queue_of(source, queue).actions, FRESH_SECONDS)
    if source.care is not None:
        source.care(queue, found)
    return [shown(queue, each) for each in found]


class Handles:
    """The actions that this process works on. It has a task for each; a queue has one action at a time."""

    def __init__(self, source: SceneSource) -> None:
        self._source = source
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._search: asyncio.Task[None] | None = None
        self.looks = 0
        """How often all queues were looked at for actions of a page before this one."""
        source.care = self.care

    @property
    def under_way(self) -> int:
        """How many actions this process works on."""
        return len(self._tasks)

    @property
    def has_looked(self) -> bool:
        """Whether it is known of all queues that a page before this one left nothing there."""
        return self._search is not None and self._search.done()

    async def begin(
        self, queue: str, kind: ActionKind, where: Where, rate: float | None, limit: int | None, by: str, note: str
    ) -> str:
        """Begin an action, and return its id: this process continues it. ConfigError if another one is under way."""
        client, state, action_id = self._source.client, queue_of(self._source, queue).state, actions.new_id()
        given = kind, where, rate, limit, Who(by, note), None, VIA_DASHBOARD, action_id
        op = _acting(state, lambda: actions.begin(state, *given), lambda parts: acts.begin(parts, *given))
        try:
            action = _action(client, await client.run(op))
        except OutcomeUnknown as error:
            self._keep(action_id, self._find(queue, action_id))
            raise MayHaveBegun(f"action {action_id} may have begun, or not") from error
        self._drive(queue, action)
        return action.id

    async def take_over(self, queue: str, action_id: str) -> None:
        """Continue an action. ConfigError if somebody works on it, or it is done."""
        try:
            action = await queue_of(self._source, queue).take_over(action_id)
        except OutcomeUnknown as error:
            self._keep(action_id, self._find(queue, action_id))
            raise MayHaveBegun(f"action {action_id} may continue, or not") from error
        self._drive(queue, action)

    async def retry_one(self, queue: str, message_id: str, key: str | bytes, by: str, note: str) -> bool:
        """Make one message deliverable at once, and return whether it waited for its next try.

        It is an action on the tenant's messages that chooses one, so it is refused while another is under way.
        """
        client, state = self._source.client, queue_of(self._source, queue).state
        where = Where(tenant=key, state="retrying")
        state, inner = await client.run(of_message(state, message_id, _pair))
        chosen = await self._retrying(state, where, inner)
        if chosen is None:
            return False
        own = actions.new_id()
        begin = actions.begin(state, "retry_now", where, None, 1, Who(by, note), None, VIA_ONE, own)
        is_begun = False
        try:
            running = await client.run(begin)
            is_begun = True
            running.search.is_over = True
            running.chosen.append(chosen)
            return (await AsyncAction(client, running).wait()).done == 1
        except BackendError as error:
            if not is_begun and not isinstance(error, OutcomeUnknown):
                raise
            self._keep(own, self._end(queue, own))
            raise OutcomeUnknown(f"message {message_id} may have been made deliverable, or not") from error

    async def _retrying(self, state: QueueState, where: Where, message_id: str) -> Chosen | None:
        """Return a message that waits for its next try; None if it does not."""
        search = Search("retry_now", where, ALL_BOUNDS)
        search.restart()
        while not search.is_over:
            for each in await self._source.client.run(selection.next_page(state, search)):
                if each.message_id == message_id:
                    return each
        return None

    async def _find(self, queue: str, action_id: str) -> None:
        """Continue an action that perhaps began, once it is there and was silent for long enough."""
        for _ in range(MAX_LOOKS):
            try:
                found = await queue_of(self._source, queue).actions()
            except BackendError as error:
                log.debug("action %s of queue %s is looked for again: %s", action_id, queue, error)
            except ShardqError as error:  # there is no such queue any more
                log.debug("action %s of queue %s is not looked for: %s", action_id, queue, error)
                return
            else:
                one = next((each for each in found if each.id == action_id), None)
                if one is not None and (one.is_over or (one.state == "abandoned" and await self._adopt(queue, one.id))):
                    return
            await asyncio.sleep(GLANCE)
        log.info("action %s of queue %s did not begin", action_id, queue)

    async def _end(self, queue: str, action_id: str) -> None:
        """Stop an action that nobody can continue, so that others need not wait until it was silent for 30 s."""
        failure: ShardqError | None = None
        for _ in range(MAX_STOPS):
            try:
                await queue_of(self._source, queue).stop_action(action_id)
            except BackendError as error:
                failure = error
                if is_denial(error):
                    break
                await asyncio.sleep(RETRY_SECONDS)
            except ShardqError as error:
                log.debug("action %s of queue %s is not stopped: %s", action_id, queue, error)
                return
            else:
                return
        log.warning("action %s of queue %s is not stopped, and ends by its silence: %s", action_id, queue, failure)

    def care(self, queue: str, found: Sequence[ActionStatus]) -> None:
        """Continue actions of a page that nobody works on any more."""
        for each in found:
            if each.via == VIA_DASHBOARD and each.state == "abandoned" and each.id not in self._tasks:
                self._keep(each.id, self._adopt(queue, each.id))

    def search(self) -> None:
        """Look once for actions of a page before this one, of all queues."""
        if self._search is None:
            self._search = asyncio.get_running_loop().create_task(self._look_for_own())

    async def quiet(self) -> None:
        """Wait until nothing is under way here."""
        while self._tasks:
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def close(self) -> None:
        """Let go of all: another process may take them over."""
        tasks = [*self._tasks.values(), *([self._search] if self._search else [])]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _drive(self, queue: str, action: AsyncAction) -> None:
        self._keep(action.id, self._go_on(queue, action))

    def _keep(self, action_id: str, work: Any) -> None:
        before = self._tasks.get(action_id)
        task = self._tasks[action_id] = asyncio.get_running_loop().create_task(work)
        if before is not None:
            before.cancel()

        def forget(done: asyncio.Task[None]) -> None:
            if self._tasks.get(action_id) is done:
                del self._tasks[action_id]

        task.add_done_callback(forget)

    async def _adopt(self, queue: str, action_id: str) -> bool:
        """Continue an action to its end, unless somebody else does. Return False if Redis is away."""
        client, state = self._source.client, queue_of(self._source, queue).state
        try:
            # The view may be a second old: somebody may have stopped it meanwhile, and then it stays so.
            op = _acting(
                state,
                lambda: actions.take_over(state, action_id, None, "adopt"),
                lambda parts: acts.take_over(parts, action_id, None, "adopt"),
            )
            action = _action(client, await client.run(op))
        except ShardqError as error:  # another page was faster, or Redis is away: the next one that looks tries again
            log.debug("action %s of queue %s is not taken over: %s", action_id, queue, error)
            return not isinstance(error, BackendError)
        log.info("action %s of queue %s continues here: its process was silent", action_id, queue)
        await self._go_on(queue, action)
        return True

    async def _go_on(self, queue: str, action: AsyncAction) -> None:
        """Work on an action to its end, also while Redis is away now and then."""
        while True:
            try:
                status = await action.wait()
            except LeaseLost:
                log.info("action %s of queue %s is another process's", action.id, queue)
                return
            except ShardqError as error:
                if not isinstance(error, BackendError) or is_denial(error):
                    log.warning("action %s of queue %s ended: %s", action.id, queue, error)
                    return
                log.warning("action %s of queue %s waits for Redis: %s", action.id, queue, error)
                await asyncio.sleep(RETRY_SECONDS)
            except Exception:
                log.exception("action %s of queue %s ended by a defect", action.id, queue)
                return
            else:
                log.info("action %s of queue %s is %s: %d done", action.id, queue, status.state, status.done)
                return

    async def _look_for_own(self) -> None:
        """Take over what a page before this one left, as soon as it was silent for long enough."""
        names: set[str] | None = None
        heard: dict[str, float] = {}
        while names is None or names:
            try:
                names = set(await self._source.client.queues()) if names is None else names
                for name in sorted(names):
                    if not await self._is_left(name, heard):
                        names.discard(name)
            except ShardqError as error:
                log.debug("actions of a page before this one are looked for again: %s", error)
            self.looks += 1
            if names is None or names:
                await asyncio.sleep(GLANCE)

    async def _is_left(self, name: str, heard: dict[str, float]) -> bool:
        """Whether a queue has a page's action that perhaps nobody works on."""
        try:
            found = await queue_of(self._source, name).actions()
        except ConfigError:  # there is no such queue any more
            return False
        self.care(name, found)
        own = next(
            (
                each
                for each in found
                if each.via == VIA_DASHBOARD and each.state == "running" and each.id not in self._tasks
            ),
            None,
        )
        if own is None:
            return False
        before = heard.setdefault(own.id, own.heard)
        return before == own.heard


def _acting(
    state: QueueState, alone: Callable[[], Op[Running]], over: Callable[[Parts], Op[list[Running]]]
) -> Op[list[Running]]:
    """Act on a queue *alone*, or *over* its partitions."""
    parts = yield from parts_of(state)
    return [(yield from alone())] if parts is None else (yield from over(parts))


def _action(client: AsyncClient, running: list[Running]) -> AsyncAction:
    return AsyncAction(client, running[0]) if len(running) == 1 else AsyncPartAction(client, running)


def _pair(state: QueueState, message_id: str) -> Op[tuple[QueueState, str]]:
    yield from ()
    return state, message_id
