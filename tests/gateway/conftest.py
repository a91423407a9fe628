"""A gateway in the test's own event loop, and a `shardq serve gateway` in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from shardq import AsyncClient
from shardq.bearer import fresh_token
from shardq.gateway.server import Gateway
from shardq.gateway.settings import GatewaySettings

Start = Callable[..., AbstractAsyncContextManager[tuple[Gateway, str]]]


class TokenFile:
    """A file of tokens, to which a test adds some."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tables: dict[str, str] = {}
        self.write()

    def add(self, name: str, **fields: Any) -> str:
        """Add a token, or replace it; its text. By default it allows everything."""
        secret, digest = fresh_token()
        given = {"queues": ["*"], "topics": ["*"], "shard_keys": ["*"], "one_tenant": False, **fields}
        lines = [f"{key} = {_spelled(value)}" for key, value in {"name": name, "sha256": digest, **given}.items()]
        self._tables[name] = "\n".join(["[[tokens]]", *lines])
        self.write()
        return secret

    def remove(self, name: str) -> None:
        del self._tables[name]
        self.write()

    def write(self) -> None:
        self.path.write_text("\n".join(self._tables.values()) or "tokens = []\n")


def _spelled(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else json.dumps(value)


@pytest.fixture
def tokens(tmp_path: Path) -> TokenFile:
    return TokenFile(tmp_path / "tokens.toml")


@pytest.fixture
async def redis_client(server_url: str) -> AsyncIterator[AsyncClient]:
    """A client beside the gateway's."""
    async with AsyncClient.from_url(server_url) as client:
        yield client


@pytest.fixture
def start(server_url: str) -> Start:
    """Start a gateway in this event loop, on a free port of loopback; without tokens if the settings name none."""

    @asynccontextmanager
    async def started(**settings: Any) -> AsyncIterator[tuple[Gateway, str]]:
        settings = {"listen": "127.0.0.1:0", "insecure": True, "release_after": 0.0, **settings}
        timeout, url = settings.pop("timeout", 5.0), settings.pop("url", server_url)
        async with AsyncClient.from_url(url, timeout=timeout, max_payload=64 * 1024 * 1024) as client:
            gateway = Gateway(client, GatewaySettings(**settings))
            try:
                yield gateway, await gateway.start()
            finally:
                await gateway.stop(0.0)

    return started


class GatewayProcess:
    """`shardq serve gateway` as a program of its own."""

    def __init__(self, url: str, *options: str, env: Mapping[str, str] = os.environ) -> None:
        command = [sys.executable, "-m", "shardq.cli", "serve", "gateway", "--redis", url, "--json", *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**env, "NO_COLOR": "1"}
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(self.process.communicate()[1])
        self.address: str = json.loads(line)["address"]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def end(self, timeout: float = 60.0) -> tuple[int, str]:
        """Wait for its end; the exit code and what it logged."""
        _, told = self.process.communicate(timeout=timeout)
        return self.process.returncode, told

    def end_as_a_deploy_does(self) -> None:
        """Ask it to end, and wait for that."""
        self.signal(signal.SIGTERM)
        assert self.end()[0] == 0

    async def ended(self) -> tuple[int, str]:
        return await asyncio.to_thread(self.end)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        with contextlib.suppress(ValueError):
            self.process.communicate(timeout=60)


@pytest.fixture
def run_gateway(server_url: str) -> Iterator[Callable[..., GatewayProcess]]:
    """Start `shardq serve gateway`; what is left of it at the end of the test is killed."""
    started: list[GatewayProcess] = []

    def run(*options: str, listen: str = "127.0.0.1:0") -> GatewayProcess:
        started.append(GatewayProcess(server_url, "--listen", listen, *options))
        return started[-1]

    yield run
    for each in started:
        each.close()
