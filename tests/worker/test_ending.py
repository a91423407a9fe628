"""What still runs when `run` has returned is counted."""

from __future__ import annotations

import threading

from shardq import Client
from shardq.tasks import Tasks
from tests.clients import ClientKind
from tests.waiting import eventually
from tests.worker.running import RunningWorker


def test_a_worker_counts_what_hangs(client: Client, url: str, client_kind: ClientKind) -> None:
    tasks: Tasks[None] = Tasks("jobs")
    inside, release = threading.Semaphore(0), threading.Event()

    @tasks.task(name="hangs")
    def hangs() -> None:
        inside.release()
        assert release.wait(60)

    queue = client.queue(tasks)
    queue.write_many([(hangs.call(), f"t{number}") for number in range(3)])
    with RunningWorker(client_kind, url, "jobs", tasks, grace=0.1) as begun:
        for _ in range(3):
            assert inside.acquire(timeout=30)
        begun.stop()
        assert begun.worker
        assert begun.worker.hangs == 3
        release.set()
        eventually(lambda: begun.worker is not None and begun.worker.hangs == 0)
    assert queue.stats().backlog == 3


def test_a_worker_of_which_nothing_hangs_counts_none(client: Client, url: str, client_kind: ClientKind) -> None:
    client.queue("jobs", create=True).write("a", shard_key="t")
    done = threading.Event()
    with RunningWorker(client_kind, url, "jobs", lambda _: done.set()) as begun:
        assert done.wait(30)
        begun.stop()
        assert begun.worker
        assert begun.worker.hangs == 0
