"""The tasks of the project: what may become of one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from django.db import connection
from django.tasks import task
from django.utils import translation

from shardq.django import options


class Odd(Exception):
    """An error of the project's own."""

    def __str__(self) -> str:
        raise RuntimeError("it has no text")


@task
def echo(*args: Any, **kwargs: Any) -> Any:
    return {"args": args, "kwargs": kwargs}


renamed = echo


@task()
async def echo_async(*args: Any, **kwargs: Any) -> Any:
    await asyncio.sleep(0)
    return {"args": args, "kwargs": kwargs}


@task(takes_context=True)
def seen(context: Any, *, more: int = 0) -> Any:
    result = context.task_result
    return [result.id, context.attempt, result.status, result.args, result.kwargs, len(result.worker_ids), more]


@task(queue_name="mails")
def mail(to: str) -> str:
    return f"to {to}"


@task
def fails(kind: str) -> None:
    raise {
        "value": ValueError("it was too much"),
        "exit": SystemExit("it would end"),
        "nested": ValueError(ValueError("inner")),
        "odd": Odd(),
        "group": ExceptionGroup("several", [KeyError("a"), OSError(2, "no such file")]),
    }[kind]


@task
async def fails_async() -> None:
    raise LookupError("nothing there")


@task
async def raises_cancelled() -> None:
    raise asyncio.CancelledError


@task
def returns(kind: str) -> Any:
    return {
        "none": None, "tuple": (1, (2,)), "bytes": b"text", "set": {1}, "object": object(), "nan": float("nan"),
        "big": 2**200, "deep": {"a": [{"b": None}]}, "text": "\ud800 ä",
    }[kind]  # fmt: skip


@task
def keyed() -> Any:
    return {"of": {1: "text"}}


@task
def hashed(key: Any) -> Any:
    return {key: 1}


@task(takes_context=True)
@options(retries=2)
def flaky(context: Any, fails_for: int) -> int:
    if context.attempt <= fails_for:
        raise ConnectionError(f"attempt {context.attempt}")
    return int(context.attempt)


@task
@options(shard_key="account")
def report(first: int, account: Any = None) -> str:
    return f"{first} of {account}"


@task
def waits(folder: str) -> str:
    """Say that it runs, and wait until it may end. The first one to run may be told to die."""
    place = Path(folder)
    (place / f"runs-{os.getpid()}").touch()
    if (place / "die").exists():
        (place / "die").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    while place.exists() and not (place / "go").exists():
        time.sleep(0.01)
    return "done"


@task
def speaks(language: str) -> Any:
    """Say which language there is, and leave another one."""
    found = translation.get_language()
    translation.activate(language)
    return found


@task
async def speaks_async(language: str) -> Any:
    return speaks.func(language)


@task
def hangs(folder: str) -> None:
    """Say that it runs, and do for an hour."""
    (Path(folder) / f"runs-{os.getpid()}").touch()
    time.sleep(3600)


@task
def leaves() -> None:
    """Start a program that outlives the one that it began with."""
    subprocess.run(["sh", "-c", "sleep 0.01 & exit 0"], check=True)


@task
async def hangs_async(folder: str) -> None:
    """Do so in a thread of its own."""
    await asyncio.to_thread(hangs.func, folder)


def query() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        return int(cursor.fetchone()[0])


@task
def asks_database() -> list[int]:
    return [query(), id(connection.connection), threading.get_ident()]


@task
async def asks_database_async() -> int:
    from asgiref.sync import sync_to_async

    return int(await sync_to_async(query)())
