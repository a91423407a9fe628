"""Write messages, read them, ack them. The server is a private one that ends with this program."""

from shardq import Client, Empty

with Client.from_url("shardq://embedded") as client:  # or redis://localhost:6379
    jobs = client.queue("predictions", streams=16)
    jobs.write({"prompt": "a cat"}, shard_key="acme")
    jobs.write({"prompt": "a dog"}, shard_key="acme", headers={"source": "example"})
    print("length", jobs.len())

    prompts = []
    while True:
        try:
            delivery = jobs.read(block=0.1)
        except Empty:
            break
        prompts.append(delivery.payload["prompt"])
        delivery.ack()  # now it is forgotten; without this it would be delivered again
    print(sorted(prompts))
    print("length", jobs.len())

# Output:
# length 2
# ['a cat', 'a dog']
# length 0
