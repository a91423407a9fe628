"""The page on an address of its own: how it ends."""

from __future__ import annotations

import urllib.request

import pytest

from shardq.client import AsyncClient
from shardq.dashboard import app
from shardq.dashboard.serving import PageServer, PageSettings
from tests.servers import Server


def test_streams_end_before_the_server_does(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise uvicorn cancels them, and logs each as an error."""
    page = PageServer(PageSettings("127.0.0.1:0"), lambda: AsyncClient.from_url(server.url), app)
    page.open()
    try:
        address = f"{page.address}live?scene=overview"
        streams = [urllib.request.urlopen(address, timeout=30) for _ in range(3)]  # noqa: S310 (this test's own)
        for each in streams:
            assert each.readline() == b"retry: 1000\n"
    finally:
        page.close()
    for each in streams:
        each.read()  # to its end, which was sent
        each.close()
    assert [each.getMessage() for each in caplog.records] == []
