"""Run ends of Django's tasks, in a process with Django's settings: `python -m tests.worker.ends.of_django`.

Its input is JSON, with the kind, the names, the server's URL and the folder of notes. It prints what is wrong of each
end, and of the worker.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.worker.ends import django_jobs
from tests.worker.ends.running import Kind, Run


def main() -> None:
    """Run them."""
    asked = json.load(sys.stdin)
    django_jobs.begin()
    found = Run(os.environ["SHARDQ_URL"], Path(os.environ["SHARDQ_TEST_LOG"]), Kind(*asked["kind"]), asked["names"])
    print(json.dumps(found.wrong), flush=True)
    os._exit(0)  # whatever hangs


if __name__ == "__main__":
    main()
