"""The page for those who run queues: `app(client)` is an ASGI application that any site can mount.

docs/dashboard.md is its page. It needs the extra `dashboard`.
"""

from __future__ import annotations

from shardq.extras import extra

with extra("dashboard", "the page"):
    from shardq.dashboard.app import app
from shardq.dashboard.people import Auth, Person, Role

__all__ = ["Auth", "Person", "Role", "app"]
