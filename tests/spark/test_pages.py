"""Pages are bounded in bytes, not only in entries."""

from __future__ import annotations

from shardq import Client
from shardq.spark.pages import FIRST_PAGE_ROWS, PAGE_BYTES, pages
from tests.servers import Server


def test_a_page_of_large_entries_is_short(server: Server) -> None:
    with Client.from_url(server.url) as client:
        queue = client.queue("large", streams=1, window=0)  # so that all of it lies in the stream
        for _ in range(2):
            queue.write_many([(bytes(400_000), "t") for _ in range(100)], timeout=60)
        found = [*pages(client, queue.state, queue.state.keys.stream(0), "-", "+", 1000)]
    most = PAGE_BYTES // 400_000
    assert [len(page) for page in found[:2]] == [FIRST_PAGE_ROWS, most]
    assert max(map(len, found[1:])) == most
    assert len({row[0] for page in found for row in page}) == 200
