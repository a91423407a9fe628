"""An API server waits for what a worker returns, and writes each document's newest version once."""

import threading

from shardq import Client, Delivery, MessageDead, Reject, Worker

client = Client.from_url("shardq://embedded")
jobs = client.queue("summaries", result_ttl=600)


def handle(delivery: Delivery) -> object:
    text = delivery.payload["text"]
    if not text:
        raise Reject("nothing to read")
    delivery.progress(1, 1, "read it")
    return {"words": len(text.split())}


# Three versions of one document wait: the newest is worked on, once.
ids = {
    jobs.write({"text": text}, shard_key="tenant-42", unique_key="document-7", on_conflict="replace")
    for text in ("a cat", "a cat sat", "a cat sat down")
}
empty = jobs.write({"text": ""}, shard_key="tenant-42")

worker = Worker(jobs, handle, concurrency=2, signals=False)
working = threading.Thread(target=worker.run)
working.start()

(document,) = ids
print("result:", jobs.result(document, timeout=30))
try:
    jobs.result(empty, timeout=30)
except MessageDead as dead:
    print("no result:", dead.reason)

worker.stop()
working.join()
print("state:", jobs.status(document).state)
client.close()

# Output:
# result: {'words': 4}
# no result: nothing to read
# state: done
