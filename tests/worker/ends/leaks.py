"""What jobs found that others had left: in a worker of any form, or in a process of its own, which has Django."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from shardq import Client
from tests.waiting import eventually
from tests.worker.ends import django_jobs
from tests.worker.ends.catalogue import SETTINGS
from tests.worker.ends.running import Kind, Working, written

SLOTS = 16


def leaks(url: str, folder: Path, kind: Kind, count: int) -> Sequence[str]:
    """Run *count* jobs. Return what they found that they should not."""
    with Client.from_url(url) as client:
        jobs = client.queue("default", **SETTINGS)
        written(jobs, [f"sets-{number}" for number in range(count)], kind)
        with Working(url, kind, 4 if kind.form == "child" else SLOTS):
            eventually(lambda: jobs.stats().acked == count, 140, every=0.02)
    return [found.read_text() for found in folder.glob("leak-*")]


def main() -> None:
    asked = json.load(sys.stdin)
    django_jobs.begin()
    found = leaks(os.environ["SHARDQ_URL"], Path(os.environ["SHARDQ_TEST_LOG"]), Kind(*asked["kind"]), asked["count"])
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
