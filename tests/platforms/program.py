"""What a client does, and a worker in one process: run as a program, it ends with "all done" if all went well."""

from __future__ import annotations

import sys
import threading
import time

from shardq import Client, Delivery, LeaseLost, Queue, Worker

READERS, EACH, BATCH, JOBS = 3, 50, 1000, 100
TURNS = 20
BLOCK = 30.0


def blocked_readers_and_writers(queue: Queue) -> None:
    """Readers wait, and other threads go on meanwhile; each message reaches one of them."""
    found: list[bytes] = []

    def read() -> None:
        for _ in range(EACH):
            delivery = queue.read(block=BLOCK)
            found.append(delivery.payload)
            delivery.ack()

    readers = [threading.Thread(target=read) for _ in range(READERS)]
    for each in readers:
        each.start()
    for _ in range(TURNS):
        time.sleep(0.01)  # it only goes on if the readers let it, which find nothing
    sent = [b"%d" % number for number in range(READERS * EACH)]

    def write(payloads: list[bytes]) -> None:
        for each in payloads:
            queue.write(each, shard_key=each.decode())

    writers = [threading.Thread(target=write, args=(part,)) for part in (sent[::2], sent[1::2])]
    for each in writers:
        each.start()
    for each in (*writers, *readers):
        each.join()
    assert sorted(found) == sorted(sent)


def batches(queue: Queue) -> None:
    """More than a socket takes at once, so a sender has to wait until it can be written."""
    queue.write_many([(b"y" * 8000, f"t{number % 7}") for number in range(BATCH)])
    taken = 0
    while taken < BATCH:
        found = queue.read_many(500)
        queue.ack_many(found)
        taken += len(found)
    assert queue.len() == 0


def leases(queue: Queue) -> None:
    """A lease ends, and the message comes again."""
    queue.write(b"lost", shard_key="t")
    delivery = queue.read(block=BLOCK)
    again = queue.read(block=BLOCK)
    assert again.message_id == delivery.message_id
    try:
        delivery.ack()
    except LeaseLost:
        again.ack()
    assert queue.len() == 0


def workers(queue: Queue) -> None:
    """Plain functions and async ones."""
    done: list[int] = []

    def plain(delivery: Delivery) -> None:
        done.append(delivery.count)

    async def asynchronous(delivery: Delivery) -> None:
        done.append(delivery.count)

    for handle in (plain, asynchronous):
        queue.write_many([(b"z", f"t{number % 7}") for number in range(JOBS)])
        Worker(queue, handle, concurrency=8, until="empty").run()
    assert (len(done), queue.len()) == (2 * JOBS, 0)


def main(url: str) -> None:
    """Do all of it."""
    with Client.from_url(url) as client:
        queue = client.queue("platform", streams=8, streams_per_shard=2, visibility_timeout=1.0)
        queue.declare()
        for part in (blocked_readers_and_writers, batches, leases, workers):
            part(queue)
    print("all done")


if __name__ == "__main__":
    main(sys.argv[1])
