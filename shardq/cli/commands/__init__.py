"""One module per command, in each `run`: the command, made of the function that runs it."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from shardq.cli.parsing import Command

_ORDER: Final = """
    write read len stats queues peek message result tenants tenant top journal dead redrive
    delete_dead cancel purge delete resize configure weights limits pause resume apply export plan
    assign unassign assigned bind unbind bindings route doctor lua embedded worker edge gateway
    gateway_token pipeline
"""
ALL: Final[tuple[Command, ...]] = tuple(import_module(f"{__name__}.{name}").run for name in _ORDER.split())
"""The commands, in the order in which the help lists them."""
