"""A worker of the demo: it reads, parses the file that a job names, and acks. On SIGTERM it finishes its batch."""

import gc
import signal
import sys

from examples.demo.producer import parse
from examples.demo.records import Records
from shardq import Client, Delivery, LeaseLost

BATCH = 4


def work_on(delivery: Delivery, records: Records, visibility: float) -> None:
    """Do one job, and record each step before the next one."""
    try:
        if delivery.remaining < visibility / 2:  # those before it in the batch took long
            delivery.extend(visibility)
        with delivery.processing():
            result = parse(delivery.payload["path"])
        records.note("parsed", id=delivery.message_id, result=result)
        delivery.ack()
        records.note("acked", id=delivery.message_id)
    except LeaseLost:
        records.note("lost", id=delivery.message_id)


def main(url: str, path: str, visibility: float) -> None:
    gc.disable()  # syntax trees have no cycles, and looking for some takes a sixth of the time
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    records = Records(path)
    with Client.from_url(url) as client:
        jobs = client.queue("jobs")
        while not stopping:
            deliveries = jobs.read_many(BATCH, block=0.5)
            for delivery in deliveries:
                records.note("took", id=delivery.message_id, count=delivery.count, pickup=delivery.pickup_delay)
            for delivery in deliveries:
                work_on(delivery, records, visibility)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
