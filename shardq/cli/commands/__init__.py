"""One module per command, in each `run`: the command, made of the function that runs it."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from shardq.cli.parsing import Command

_NAMES: Final = """
    write read len stats queues peek message result tenants tenant top journal dead redrive
    delete-dead cancel purge delete resize configure weights limits pause resume schedule apply export plan
    assign unassign assigned bind unbind bindings route doctor acl lua embedded worker edge
    gateway gateway-token pipeline
"""
NAMES: Final = tuple(_NAMES.split())
"""The names of the commands, in the order in which the help lists them."""


def load(name: str) -> Command:
    """Return the command called *name*. Only now is its module imported: most are not needed by one call."""
    command: Command = import_module(f"{__name__}.{name.replace('-', '_')}").run
    return command
