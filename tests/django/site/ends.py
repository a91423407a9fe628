"""Tasks that have the ends of tests/worker/ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from django.tasks import task

from tests.worker.ends import jobs, leaking
from tests.worker.ends.deaf import goes_on


def delivery_of(context: Any, name: str) -> Any:
    """What a task of Django knows of its delivery."""
    return SimpleNamespace(payload=name, shard_key=name, count=context.attempt, last_error="", lost=False)


@task(takes_context=True)
def run(context: Any, name: str) -> Any:
    return leaking.sets(name) if name.startswith("sets-") else jobs.handle(delivery_of(context, name))


@task(takes_context=True)
async def run_async(context: Any, name: str) -> Any:
    job = leaking.sets_async(name) if name.startswith("sets-") else jobs.handle_async(delivery_of(context, name))
    return await job


@task
def deaf(name: str) -> None:
    goes_on(name)
