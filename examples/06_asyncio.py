"""asyncio: a producer and ten consumers in one event loop."""

import asyncio

from shardq import AsyncClient, AsyncQueue, Empty


async def produce(jobs: AsyncQueue) -> None:
    for n in range(100):
        await jobs.write({"n": n}, shard_key=f"tenant-{n % 7}")


async def consume(jobs: AsyncQueue, done: list[int]) -> None:
    while len(done) < 100:
        try:
            delivery = await jobs.read(block=0.2)
        except Empty:
            continue
        with delivery.processing():  # a tracing span around the work
            done.append(delivery.payload["n"])
        await delivery.ack()


async def main() -> None:
    async with AsyncClient.from_url("shardq://embedded") as client:
        jobs, done = client.queue("predictions", streams=16), list[int]()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(produce(jobs))
            for _ in range(10):
                tasks.create_task(consume(jobs, done))
        print("each once:", sorted(done) == list(range(100)), "length", await jobs.len())


asyncio.run(main())

# Output:
# each once: True length 0
