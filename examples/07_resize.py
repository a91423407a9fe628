"""Resizing: more streams, and fewer again, while messages are written and read. No message is lost."""

from shardq import Client

TENANTS = [f"tenant-{n}" for n in range(200)]

with Client.from_url("shardq://embedded") as client:
    jobs = client.queue("predictions", streams=64, streams_per_shard=4)
    ids = jobs.write_many((b"before", tenant) for tenant in TENANTS)

    print("streams read and written:", jobs.resize(96))
    ids += jobs.write_many((b"with 96", tenant) for tenant in TENANTS)

    read, written = jobs.resize(16)  # the higher streams are read until they are empty, but not written to any more
    print("more are read than written:", read > written == 16)
    ids += jobs.write_many((b"with 16", tenant) for tenant in TENANTS)

    seen = []
    while deliveries := jobs.read_many(100):
        jobs.ack_many(deliveries)
        seen += [delivery.message_id for delivery in deliveries]
    print("every message once:", sorted(seen) == sorted(ids), len(seen))
    print("streams read and written:", jobs.resize(16))

# Output:
# streams read and written: (96, 96)
# more are read than written: True
# every message once: True 600
# streams read and written: (16, 16)
