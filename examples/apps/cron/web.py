"""A web server that tells of the calls so far. It needs no Redis."""

import time
from typing import Any

from flask import Flask, request
from tasks import BEATS

app = Flask(__name__)


@app.get("/beats")
def told() -> dict[str, Any]:
    at_least, until = request.args.get("at_least", 1, type=int), time.monotonic() + 30
    while len(slots := BEATS.read_text().split() if BEATS.exists() else []) < at_least and time.monotonic() < until:
        time.sleep(0.1)
    return {"beats": len(slots), "twice": len(slots) - len(set(slots))}
