"""A web server that writes calls, and tells what became of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date
from typing import Any

from fastapi import FastAPI, HTTPException
from fastapi.responses import RedirectResponse
from tasks import URL, report, tasks

from shardq import AsyncClient, NoResult, ResultPending


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with AsyncClient.from_url(URL) as client:
        app.state.jobs = client.queue(tasks)
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/reports")
async def ask(account: str, first_day: date, days: int) -> RedirectResponse:
    job = await app.state.jobs.write(report.call(account, first_day, days), shard_key=account)
    return RedirectResponse(f"/reports/{job.id}", status_code=303)


@app.get("/reports/{job_id}")
async def answer(job_id: str, wait: float = 10) -> Any:
    try:
        return await app.state.jobs.job(report, job_id).result(timeout=min(wait, 30))
    except ResultPending:
        return {"state": "pending"}
    except NoResult as error:
        raise HTTPException(404, str(error)) from error
