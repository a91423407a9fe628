"""What workers run: a handler and Tasks for each form and place, at the top of a module that child processes import."""

from __future__ import annotations

import asyncio
import inspect
import time
from typing import Any, Final

from shardq import Reject
from shardq.tasks import Tasks
from tests.worker.ends import django_jobs, leaking
from tests.worker.ends.catalogue import (
    ASYNC_MIDDLEWARE,
    BATCHES,
    DJANGO,
    ENDS,
    EVENTS,
    IN_LOOP,
    SETTINGS,
    UNAWAITED,
    Form,
    Place,
    ends_of,
    folder,
    hangs_in_await,
    note,
)

WAIT: Final = 3.0
"""Seconds for which a batch waits for its second member: all are read at once, so only one that comes again waits."""


def note_ordinary(name: str) -> None:
    """Note that an ordinary job is under way. The last one that the worker has a slot for lets all go on."""
    note(name)
    if len(list(folder().glob("ordinary-*"))) >= int((folder() / "slots").read_text()):
        (folder() / "met").touch()


def meet(name: str) -> None:
    """Wait until as many ordinary jobs are under way as the worker has slots: so all of these are free."""
    note_ordinary(name)
    while not (folder() / "met").exists():
        time.sleep(0.01)


async def meet_async(name: str) -> None:
    note_ordinary(name)
    while not (folder() / "met").exists():  # noqa: ASYNC110 (a file of the test)
        await asyncio.sleep(0.01)


def is_second(name: str, delivery: Any) -> bool:
    """Whether it was tried before; then its last error is noted."""
    if delivery.count == 1:
        note(f"begun-{name}")
        return False
    while UNAWAITED:
        UNAWAITED.pop().close()
    note(f"again-{name}", delivery.last_error)
    return True


def end(name: str, delivery: Any) -> Any:
    """The end *name*, the first time."""
    return None if is_second(name, delivery) else ENDS[name].do(delivery)


async def end_async(name: str, delivery: Any) -> Any:
    if is_second(name, delivery):
        return None
    found = ENDS[name].do(delivery)
    return await found if inspect.iscoroutinefunction(ENDS[name].do) else found


def handle(delivery: Any) -> Any:
    """The handler of a Worker."""
    name = delivery.payload
    return meet(name) if name.startswith("ordinary") else end(name, delivery)


async def handle_async(delivery: Any) -> Any:
    """The handler of an AsyncWorker."""
    name = delivery.payload
    return await (meet_async(name) if name.startswith("ordinary") else end_async(name, delivery))


def rejecting(delivery: Any) -> Any:
    """A handler whose messages are dead letters at once, but for ordinary ones."""
    return handle(delivery) if delivery.payload.startswith("ordinary") else poison()


async def rejecting_async(delivery: Any) -> Any:
    return await handle_async(delivery) if delivery.payload.startswith("ordinary") else poison()


def poison() -> Any:
    raise Reject("poison")


def on_dead(delivery: Any, _: str) -> Any:
    """One that fails as its dead letter says."""
    note(f"begun-{delivery.shard_key}")
    return ENDS[delivery.shard_key].do(delivery)


def on_error(delivery: Any, _: BaseException) -> Any:
    """The same of an error reporter."""
    if isinstance(delivery, (list, tuple)):
        delivery = delivery[0]
    return ENDS[delivery.shard_key].do(delivery)


def around(call_next: Any, delivery: Any) -> Any:
    """A middleware that does what its message says."""
    found = ENDS.get(delivery.shard_key)
    if found is None or delivery.count > 1:
        return call_next(delivery)
    note(f"begun-{delivery.shard_key}")
    return found.do(call_next, delivery)


async def around_async(call_next: Any, delivery: Any) -> Any:
    found = ENDS.get(delivery.shard_key)
    if found is None or delivery.count > 1:
        return await call_next(delivery)
    note(f"begun-{delivery.shard_key}")
    done = found.do(call_next, delivery)
    return await done if inspect.iscoroutinefunction(found.do) else done


def inner(name: str, delivery: Any) -> None:
    """What a task does within the middleware, or that an error reporter is told of."""
    if is_second(name, delivery):
        return
    if name.startswith("fails") and not (folder() / f"failed-{name}").exists():
        note(f"failed-{name}")
        raise ValueError("inner")


def options_of(name: str, place: Place) -> dict[str, Any]:
    return {"name": name, **(ENDS[name].options if place == "task" else {})}


def made(form: Form, place: Place) -> Tasks[None]:  # noqa: C901 (a function for each kind of task)
    """Tasks with one for each end, of the same name, and with an ordinary one."""
    is_loop = form in IN_LOOP
    middleware = [around_async if form in ASYNC_MIDDLEWARE else around] if place == "middleware" else []
    tasks: Tasks[None] = Tasks(
        "default", middleware=middleware, on_error=on_error if place == "on_error" else None, error_text=True,
        **SETTINGS,
    )  # fmt: skip

    def run(name: str) -> Any:
        if place == "on_error":
            if not is_second(name, tasks.delivery):
                raise ValueError("told")
            return None
        return inner(name, tasks.delivery) if place == "middleware" else end(name, tasks.delivery)

    async def run_async(name: str) -> Any:
        if place == "task":
            return await end_async(name, tasks.delivery)
        if name.startswith("hangs") and tasks.delivery.count == 1:
            await hangs_in_await(tasks.delivery)
        return run(name)

    def run_batch(names: list[str]) -> Any:
        deliveries = tasks.delivery
        seconds = [is_second(name, delivery) for name, delivery in zip(names, deliveries, strict=True)]
        if all(seconds):
            return None
        if place == "task":
            do = ENDS[names[0]].do
            return do(names) if "." in names[0] else do(deliveries[0])
        if place == "on_error":
            raise ValueError("told")
        return inner(names[0], deliveries[0]) if place == "middleware" else None

    async def run_async_batch(names: list[str]) -> Any:
        found = run_batch(names)
        is_awaited = place == "task" and inspect.iscoroutinefunction(ENDS[names[0]].do)
        return await found if is_awaited and found is not None else found

    for event in EVENTS:
        for name in ends_of(form, place, event):
            if form in BATCHES:
                how = options_of(name.partition(".")[0] + ".bad" if "." in name else name, place)
                if how["name"] not in {task.name for task in tasks}:
                    size = 2 if "." in name else 1
                    tasks.batch(size=size, wait=WAIT, **how)(run_async_batch if is_loop else run_batch)
            else:
                tasks.task(**options_of(name, place))(run_async if is_loop else run)
    tasks.task(name="ordinary")(meet_async if is_loop else meet)
    return tasks


def made_to_leak(form: Form) -> Tasks[None]:
    """Tasks with one that sets what a context has."""
    tasks: Tasks[None] = Tasks("default", **SETTINGS)
    if form in BATCHES:
        of_many: Any = leaking.sets_of_many_async if form in IN_LOOP else leaking.sets_of_many
        tasks.batch(name="sets", size=10, wait=0.1)(of_many)
    else:
        of_one: Any = leaking.sets_async if form in IN_LOOP else leaking.sets
        tasks.task(name="sets")(of_one)
    return tasks


child_context = made_to_leak("child")
child_task = made("child", "task")
child_middleware = made("child", "middleware")
child_on_error = made("child", "on_error")


def jobs_of(form: Form, place: Place) -> Any:
    """What a worker of this form runs: a handler, or Tasks."""
    if form in DJANGO:
        return django_jobs.all_tasks()
    if place == "handler":
        return handle_async if form in IN_LOOP else handle
    if place == "on_dead":
        return rejecting_async if form in IN_LOOP else rejecting
    if place == "context" and form != "child":
        return made_to_leak(form)
    if form == "child":
        return globals()[f"child_{place}"]
    return made(form, place)
