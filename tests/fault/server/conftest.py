"""Users with the rights of their roles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acl import Users
from tests.servers import Server


@pytest.fixture
def users(server: Server) -> Iterator[Users]:
    """A user for each role, on an empty server."""
    users = Users(server)
    yield users
    users.remove()
