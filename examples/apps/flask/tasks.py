"""The tasks, which web server and worker both import."""

import os

from shardq.backoff import Exponential
from shardq.tasks import Tasks

URL = os.environ.get("SHARDQ_URL", "redis://localhost:6379")
tasks: Tasks[None] = Tasks("thumbnails", result_ttl=600)


@tasks.task(retries=3, backoff=Exponential(base=1, cap=60))
def thumbnail(name: str, width: int) -> str:
    if width < 1:
        raise ValueError(width)
    return f"{name}-{width}.png"
