"""The page on an address of its own: how it ends, in order or not."""

from __future__ import annotations

import sys
import urllib.request
from subprocess import PIPE, Popen
from typing import NoReturn

import pytest
import uvicorn

from shardq.client import AsyncClient
from shardq.dashboard import app
from shardq.dashboard.serving import PageServer, PageSettings
from shardq.errors import ClosedError
from tests.servers import Server
from tests.waiting import eventually


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


@pytest.mark.parametrize("error", [MemoryError(), SystemExit(1), RuntimeError("the loop broke"), KeyboardInterrupt()])
def test_a_thread_that_ends_by_itself_is_told(
    server: Server, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(_: uvicorn.Server) -> NoReturn:
        raise error

    monkeypatch.setattr(uvicorn.Server, "main_loop", fails)
    page = PageServer(PageSettings("127.0.0.1:0"), lambda: AsyncClient.from_url(server.url), app)
    page.open()

    def has_ended() -> bool:
        try:
            page.check()
        except ClosedError as told:
            assert f"the page is not served any more: {type(error).__name__}" in str(told)  # noqa: PT017
            return True
        return False

    try:
        eventually(has_ended, what="the end of the thread")
    finally:
        page.close()
    page.check()  # it was closed: nobody asks for it


DIES = """
import sys, uvicorn
from shardq.cli.program import main

async def fails(self):
    raise MemoryError

uvicorn.Server.main_loop = fails
sys.exit(main(sys.argv[1:]))
"""


def test_the_command_ends_with_its_thread(server: Server) -> None:
    words = ["serve", "dashboard", "--listen", "127.0.0.1:0", "--url", server.url]
    with Popen([sys.executable, "-c", DIES, *words], stdout=PIPE, stderr=PIPE, text=True) as process:
        _, told = process.communicate(timeout=150)
    assert process.returncode == 1
    assert told == "shardq: the page is not served any more: MemoryError; start it again\n"
