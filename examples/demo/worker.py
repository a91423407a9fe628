"""A worker of the demo: it reads a job, parses the file that it names, and acks. On SIGTERM it finishes its job."""

import ast
import contextlib
import gc
import signal
import sys
import warnings

from examples.demo.records import Records
from shardq import Client, Delivery, LeaseLost


def parse(path: str) -> None:
    """The work of a job: whether the file is good Python. Some test data is not, and finding out is the job, too."""
    with open(path, "rb") as file, warnings.catch_warnings():  # noqa: PTH123 (the fastest, and this is all we do)
        warnings.simplefilter("ignore")
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):
            ast.parse(file.read())


def work_on(delivery: Delivery, records: Records) -> None:
    """Do one job, and record each step before the next one."""
    its_id = delivery.message_id
    records.note("took", id=its_id, tenant=delivery.shard_key, count=delivery.count, pickup=delivery.pickup_delay)
    try:
        with delivery.processing():
            parse(delivery.payload["path"])
        records.note("parsed", id=its_id, work=delivery.payload["work"])
        delivery.ack()
        records.note("acked", id=its_id)
    except LeaseLost:
        records.note("lost", id=its_id)


def main(url: str, path: str) -> None:
    gc.disable()  # syntax trees have no cycles, and looking for some takes a sixth of the time
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    records = Records(path)
    with Client.from_url(url) as client:
        jobs = client.queue("jobs")
        records.note("ready")
        while not stopping:
            for delivery in jobs.read_many(1, block=0.5):
                work_on(delivery, records)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
