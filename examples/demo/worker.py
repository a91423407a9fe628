"""A worker of the demo: for each job it parses the file that the job names. On SIGTERM it finishes its job."""

import ast
import contextlib
import gc
import sys
import warnings

from examples.demo.records import Records
from shardq import Client, Delivery, LeaseLost, Worker


def parse(path: str) -> None:
    """The work of a job: whether the file is good Python. Some test data is not, and finding out is the job, too."""
    with open(path, "rb") as file, warnings.catch_warnings():  # noqa: PTH123 (the fastest, and this is all we do)
        warnings.simplefilter("ignore")
        with contextlib.suppress(SyntaxError, ValueError, RecursionError):
            ast.parse(file.read())


def work_on(delivery: Delivery, records: Records) -> None:
    """Do one job, and record each step before the next one. The worker would ack it, but only this can record that."""
    its_id = delivery.message_id
    records.note("took", id=its_id, tenant=delivery.shard_key, count=delivery.count, pickup=delivery.pickup_delay)
    try:
        parse(delivery.payload["path"])
        records.note("parsed", id=its_id, work=delivery.payload["work"])
        delivery.ack()
        records.note("acked", id=its_id)
    except LeaseLost:
        records.note("lost", id=its_id)


def main(url: str, path: str) -> None:
    gc.disable()  # syntax trees have no cycles, and looking for some takes a sixth of the time
    records = Records(path)
    with Client.from_url(url) as client:
        worker = Worker(client.queue("jobs"), lambda delivery: work_on(delivery, records), concurrency=1)
        records.note("ready")
        worker.run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
