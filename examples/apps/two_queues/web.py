"""A web server that writes to either queue."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from tasks import URL, report, tasks, urgent

from shardq import AsyncClient


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with AsyncClient.from_url(URL) as client:
        app.state.queues = {False: client.queue(tasks), True: client.queue(urgent)}
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/reports")
async def ask(account: str, is_urgent: bool = False) -> str:
    job = await app.state.queues[is_urgent].write(report.call(account), shard_key=account)
    return str(await job.result(timeout=10))
