"""Failures: nack to try again, reject to give up at once, and dead letters for messages that failed too often."""

from shardq import Client

with Client.from_url("shardq://embedded") as client:
    jobs = client.queue("predictions", max_deliveries=3)
    jobs.write({"prompt": "a cat"}, shard_key="acme")
    jobs.write({"prompt": None}, shard_key="acme")

    while deliveries := jobs.read_many(10):
        for delivery in deliveries:
            if delivery.payload["prompt"] is None:
                delivery.reject("no prompt")  # trying again would not help
            else:
                delivery.nack(error=f"out of memory in attempt {delivery.count}")  # also delay=, to try again later

    letters = sorted(jobs.dead(), key=lambda letter: letter.count)
    for letter in letters:
        print(f"{letter.count} x delivered: {letter.reason}; last error: {letter.last_error}")

    moved = jobs.redrive([letter for letter in letters if letter.count == 3])  # its cause was mended
    delivery = jobs.read()
    print(moved, "redriven, same id:", delivery.message_id == letters[1].message_id, "delivery", delivery.count)
    delivery.ack()
    print("dead", jobs.stats().dead, "length", jobs.len())

# Output:
# 1 x delivered: no prompt; last error: no prompt
# 3 x delivered: max deliveries; last error: out of memory in attempt 3
# 1 redriven, same id: True delivery 4
# dead 1 length 0
