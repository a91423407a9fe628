"""A web server that writes calls, and tells what became of them."""

from typing import Any

from flask import Flask, redirect, request
from tasks import URL, tasks, thumbnail

from shardq import Client, ConfigError, NoResult, ResultPending

app = Flask(__name__)
jobs = Client.from_url(URL).queue(tasks)  # connects when it is first used, in each process


@app.post("/thumbnails")
def ask() -> Any:
    try:
        call = thumbnail.call(request.form["name"], request.form.get("width", 100, type=int))
        job = jobs.write(call, shard_key=request.form["tenant"])
    except ConfigError as error:  # no tenant, say
        return {"error": str(error)}, 400
    return redirect(f"/thumbnails/{job.id}", 303)


@app.get("/thumbnails/<job_id>")
def answer(job_id: str) -> Any:
    try:
        return {"name": jobs.job(thumbnail, job_id).result(timeout=10)}
    except ResultPending:
        return {"state": jobs.status(job_id).state}, 202
    except NoResult as error:
        return {"error": str(error)}, 404
