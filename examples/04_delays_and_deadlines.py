"""Delays, deadlines and dedup keys: deliver not before a time, not after a time, and store a message once."""

import time

from shardq import Client, Empty

with Client.from_url("shardq://embedded") as client:
    jobs = client.queue("reminders", streams=16)

    started = time.monotonic()
    jobs.write("say hello", shard_key="acme", delay=1)
    stats = jobs.stats()
    print("waiting", stats.backlog, "delayed", stats.delayed)
    delivery = jobs.read(block=20)  # wakes when the message is due
    print(delivery.payload, "not before 1 s:", time.monotonic() - started >= 1)
    delivery.ack()

    jobs.write("only worth it now", shard_key="acme", deadline=0.2)
    time.sleep(0.3)  # nobody read it in time
    try:
        jobs.read()
    except Empty:
        print("past its deadline: not delivered, but counted:", jobs.stats().expired)

    first = jobs.write("invoice 7", shard_key="acme", dedup_key="invoice-7")
    again = jobs.write("invoice 7", shard_key="acme", dedup_key="invoice-7")  # from another process, after a crash ...
    print("written once:", first == again, jobs.len(), "the second one is new:", again.is_new)

# Output:
# waiting 0 delayed 1
# say hello not before 1 s: True
# past its deadline: not delivered, but counted: 1
# written once: True 1 the second one is new: False
