"""Programs that run workers, for `test_programs`: `python -m tests.worker.programs NAME`.

Their queues are `jobs` and `others`; what they handled goes to the log, as `tests.worker.handlers` writes it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from gunicorn.app.base import BaseApplication

from shardq import AsyncClient, AsyncWorker, Client, Worker
from tests.worker.handlers import quick, quick_async

URL = os.environ.get("SHARDQ_URL", "")
AT_ONCE = 4
Talk = Callable[..., Awaitable[Any]]


def worker(client: Client, queue: str) -> Worker:
    return Worker(client.queue(queue), quick, concurrency=AT_ONCE)


def async_worker(client: AsyncClient, queue: str) -> AsyncWorker:
    return AsyncWorker(client.queue(queue), quick_async, concurrency=AT_ONCE)


async def one(queue: str = "jobs") -> None:
    async with AsyncClient.from_url(URL) as client:
        await async_worker(client, queue).run()


def alone() -> None:
    """An AsyncWorker in `asyncio.run`."""
    asyncio.run(one())


def tasks() -> None:
    """Two AsyncWorkers in one loop."""

    async def both() -> None:
        await asyncio.gather(one("jobs"), one("others"))

    asyncio.run(both())


def threads() -> None:
    """Two Workers: one in the main thread, one in another."""
    with Client.from_url(URL) as client:
        other = threading.Thread(target=worker(client, "others").run)
        other.start()
        worker(client, "jobs").run()
        other.join()


def loops() -> None:
    """Two AsyncWorkers in the loops of two threads."""
    other = threading.Thread(target=asyncio.run, args=(one("others"),))
    other.start()
    asyncio.run(one("jobs"))
    other.join()


def kinds() -> None:
    """A Worker in a thread of a program that awaits an AsyncWorker."""

    async def both(client: Client) -> None:
        await asyncio.gather(one("jobs"), asyncio.to_thread(worker(client, "others").run))

    with Client.from_url(URL) as client:
        asyncio.run(both(client))


async def application(scope: dict[str, Any], receive: Talk, send: Talk) -> None:
    """An ASGI application with a worker for as long as it lives."""
    assert scope["type"] == "lifespan"
    await receive()
    async with AsyncClient.from_url(URL) as client:
        worker = async_worker(client, "jobs")
        working = asyncio.create_task(worker.run())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        assert not working.done()  # the signal was the server's
        worker.stop()
        await working
    await send({"type": "lifespan.shutdown.complete"})


def served() -> None:
    """An AsyncWorker in the lifespan of an application that uvicorn serves."""
    uvicorn.run(application, port=0, lifespan="on", log_level="warning")


def beside() -> None:
    """An AsyncWorker that begins to work before uvicorn, in the same loop."""
    server = uvicorn.Server(uvicorn.Config(application, port=0, lifespan="off", log_level="warning"))

    async def both() -> None:
        async with AsyncClient.from_url(URL) as client:
            await asyncio.gather(async_worker(client, "jobs").run(), server.serve())

    asyncio.run(both())


class Gunicorn(BaseApplication):  # type: ignore[misc]
    """gunicorn with one process that serves *served*, and these *settings*."""

    def __init__(self, served: object, **settings: Any) -> None:
        self._served, self._settings = served, settings
        super().__init__()

    def load_config(self) -> None:
        for name, value in (self._settings | {"bind": ["127.0.0.1:0"], "loglevel": "warning"}).items():
            self.cfg.set(name, value)

    def load(self) -> object:
        return self._served


def gunicorn() -> None:
    """An AsyncWorker in the lifespan of an application that gunicorn serves."""
    Gunicorn(application, worker_class="uvicorn_worker.UvicornWorker").run()


def forked() -> None:
    """A Worker in a thread of each process that gunicorn forks."""
    begun: list[tuple[Client, Worker, threading.Thread]] = []

    def begin(_: object, __: object) -> None:
        client = Client.from_url(URL)
        working = worker(client, "jobs")
        begun.append((client, working, threading.Thread(target=working.run)))
        begun[0][2].start()

    def end(_: object, __: object) -> None:
        client, working, thread = begun[0]
        working.stop()
        thread.join()
        client.close()

    Gunicorn(lambda _, start: start("204 No Content", []), post_fork=begin, worker_exit=end).run()


if __name__ == "__main__":
    all_of_them = (alone, tasks, threads, loops, kinds, served, beside, gunicorn, forked)
    {each.__name__: each for each in all_of_them}[sys.argv[1]]()
