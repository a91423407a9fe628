"""A job application: typed tasks, retries with backoff, a result, two queues that one worker serves, and a test."""

import asyncio

from shardq import AsyncClient, AsyncWorker
from shardq.backoff import Exponential
from shardq.tasks import Tasks

tasks = Tasks("reports", result_ttl=600)


@tasks.task(retries=3, backoff=Exponential(base=1, cap=600), retry_on=(ConnectionError,))
async def total(prices: list[float], tax: float = 0.2) -> float:
    return sum(prices) * (1 + tax)


@tasks.task
def mail(to: str, text: str) -> None:
    print("mail:", to, text)


async def main() -> None:
    async with AsyncClient.from_url("shardq://embedded") as client:
        jobs, mails = client.queue(tasks), client.queue("mails", create=True)
        job = await jobs.write(total.call([3.0, 4.5]), shard_key="tenant-42")
        await mails.write(mail.call("a@example.com", text="it comes"), shard_key="tenant-42")
        await AsyncWorker({jobs: 3, mails: 1}, tasks, until="empty").run()
        print("result:", await job.result(timeout=30))


def test_total() -> None:
    assert asyncio.run(total([3.0, 4.5])) == 9.0


if __name__ == "__main__":
    asyncio.run(main())

# Output:
# mail: a@example.com it comes
# result: 9.0
