"""Batches: many messages in few round trips. A batch takes messages from all streams, so no tenant is left out."""

from collections import Counter

from shardq import Client, Message

with Client.from_url("shardq://embedded") as client:
    jobs = client.queue("predictions", streams=16, streams_per_shard=2)

    # One tenant floods, 20 others write one message each. Pairs (payload, shard key), or a Message for more.
    jobs.write_many(({"n": n}, "flooding") for n in range(1000))
    jobs.write_many(Message({"n": 0}, f"tenant-{n}", deadline=3600) for n in range(20))
    print("length", jobs.len())

    # One read of 100 messages, like 100 reads of 1, goes round all streams: quiet tenants do not wait behind the 1,000.
    deliveries = jobs.read_many(100)
    tenants = Counter(delivery.shard_key for delivery in deliveries)
    print("quiet tenants among the first 100:", len(tenants) - 1)

    lost = jobs.ack_many(deliveries)  # the deliveries whose lease had ended meanwhile
    print("acked", len(deliveries) - len(lost), "left", jobs.len())

# Output:
# length 1020
# quiet tenants among the first 100: 20
# acked 100 left 920
