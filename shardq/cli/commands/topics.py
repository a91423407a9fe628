"""`shardq topics NAME`: which queues the messages of a topic go to."""

from __future__ import annotations

from typing import Final

from shardq.cli.menu import Menu
from shardq.cli.parsing import group

ABOUT = """A message that is published to a topic goes to each queue to which a pattern that matches the topic is
bound."""

EXAMPLES = """  shardq topics bind 'orders.*.created' billing
  shardq topics list
  shardq topics route orders.eu.created"""

MENU: Final = Menu(
    "shardq.cli.topics",
    {
        "": {
            "list": "list the bindings of topics to queues",
            "bind": "send messages of matching topics to a queue",
            "unbind": "remove bindings of a queue",
            "route": "print which queues a topic goes to",
        }
    },
)

run = group(MENU, ABOUT, EXAMPLES)
