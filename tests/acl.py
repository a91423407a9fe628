"""Users of a server, each with the rights that `shardq server acl` prints for its role."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from shardq.protocol.roles import ROLES, rules
from tests.servers import Server

PASSWORD = "PASSWORD"


class Users:
    """A user for each role, called like it, for the queue "jobs"."""

    def __init__(self, server: Server, **how: Any) -> None:
        self._server = server
        for role in ROLES.values():
            server.run("ACL", "SETUSER", role.name, "reset", "on", f">{PASSWORD}", *rules(role, ["jobs"], **how))

    def url(self, user: str) -> str:
        """Where this user finds the server."""
        return self._server.url.replace("unix://", f"unix://{user}:{PASSWORD}@")

    def run(self, user: str, *words: Any) -> object:
        """What Redis answers this user."""
        with self._server.client(username=user, password=PASSWORD) as plain:
            return plain.execute_command(*words)

    @contextmanager
    def connection(self, user: str) -> Iterator[redis.Connection]:
        """A bare connection of this user."""
        with self._server.client(username=user, password=PASSWORD) as plain:
            connection = plain.connection_pool.get_connection()
            yield connection
            connection.disconnect()

    def remove(self) -> None:
        """Delete all of them."""
        self._server.run("ACL", "DELUSER", *ROLES)


def is_denial(error: redis.ResponseError) -> bool:
    """Whether Redis says that a user has no right to a command, or to a key."""
    return re.search("permission|acl|can't run|can't access", str(error).lower()) is not None
