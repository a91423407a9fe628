"""The names of Redis: of its commands, settings and numbers. The server of the tests is asked."""

from __future__ import annotations

from functools import cache
from typing import Any

import redis

from shardq.embedded import EmbeddedServer


@cache
def redis_names() -> frozenset[str]:
    """All of them; those of commands in capitals."""
    with EmbeddedServer() as server, redis.from_url(server.url, decode_responses=True) as client:
        commands: Any = client.command_list()
        settings: Any = client.config_get("*")
        numbers: Any = client.info("everything")
    return frozenset({*(name.upper() for name in commands), *settings, *numbers})
