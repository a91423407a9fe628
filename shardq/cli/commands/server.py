"""`shardq server NAME`: its intended and its actual settings."""

from __future__ import annotations

from typing import Final

from shardq.cli.menu import Menu
from shardq.cli.parsing import group

ABOUT = """For operators of the Redis or Valkey server that queues lie on."""

EXAMPLES = """  shardq server doctor
  shardq server acl producer orders"""

MENU: Final = Menu(
    "shardq.cli.server",
    {
        "": {
            "doctor": "check whether a server is fit for shardq",
            "acl": "print the Redis ACL user that a role needs",
            "lua": "show what Redis runs for a verb, or the libraries it has",
        }
    },
)

run = group(MENU, ABOUT, EXAMPLES)
