"""A worker runs handlers in threads, extends their leases, tries failures again, and drains at the end.

Here a handler stops it; in production SIGTERM does. `shardq worker` runs the same worker from a shell.
"""

from shardq import Client, Delivery, Reject, Worker
from shardq.backoff import Constant

client = Client.from_url("shardq://embedded")
jobs = client.queue("thumbnails", max_deliveries=3)
done: list[str] = []


def handle(delivery: Delivery) -> None:
    name = delivery.payload["name"]
    if not name.endswith(".png"):
        raise Reject("not a picture")  # to the dead letters, at once
    if name == "flaky.png" and delivery.count < 2:
        raise OSError("the disk was busy")  # again, after the backoff
    done.append(name)
    if len(done) == 3:
        worker.stop()  # finish what runs, give back the rest


for name in ("cat.png", "flaky.png", "notes.txt", "dog.png"):
    jobs.write({"name": name}, shard_key="tenant-42")
worker = Worker(jobs, handle, concurrency=4, backoff=Constant(0.1))
worker.run()

print("done:", sorted(done))
print("dead:", [letter.reason for letter in jobs.dead()], "left:", jobs.len())
client.close()

# Output:
# done: ['cat.png', 'dog.png', 'flaky.png']
# dead: ['not a picture'] left: 0
