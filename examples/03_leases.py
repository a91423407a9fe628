"""Leases: a delivery is yours until its deadline. If it is not settled by then, the message is delivered again."""

from shardq import Client, LeaseLost

with Client.from_url("shardq://embedded") as client:
    jobs = client.queue("predictions", visibility_timeout=30)
    message_id = jobs.write(b"render", shard_key="acme")

    slow = jobs.read(visibility_timeout=0.3)  # this worker is too slow, or it died
    print("delivery", slow.count, "of", slow.payload, "lease of at most 0.3 s:", slow.remaining <= 0.3)

    other = jobs.read(block=20)  # gets it as soon as the lease has ended
    print("delivery", other.count, "same id:", other.message_id == message_id)

    try:
        slow.ack()
    except LeaseLost:
        print("the slow one's ack changed nothing")

    other.extend(60)  # this one knows that it will take longer
    print("lease of more than 59 s:", other.remaining > 59)
    other.ack()
    print("length", jobs.len())

# Output:
# delivery 1 of b'render' lease of at most 0.3 s: True
# delivery 2 same id: True
# the slow one's ack changed nothing
# lease of more than 59 s: True
# length 0
