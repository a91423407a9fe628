"""A web server that writes one call for each line, and tells what was stored."""

from flask import Flask, request
from tasks import URL, database, store, tasks

from shardq import Client

app = Flask(__name__)
jobs = Client.from_url(URL).queue(tasks)


@app.post("/documents/<tenant>")
def add(tenant: str) -> dict[str, int]:
    lines = request.get_data(as_text=True).splitlines()
    ids = jobs.write_many([(store.call((f"{tenant}/{at}", line)), tenant) for at, line in enumerate(lines)])
    return {"written": len(ids)}


@app.get("/documents")
def told() -> dict[str, int]:
    with database() as connection:
        count, batch = connection.execute("SELECT count(*), coalesce(max(batch), 0) FROM documents").fetchone()
    return {"stored": count, "largest batch": batch, "waiting": jobs.len()}
