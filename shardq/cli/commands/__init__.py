"""One module per command. Each has `register(commands)`, which adds its parser and names the function that runs it."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Final

_ORDER: Final = """
    write read len stats queues peek message result tenants tenant top journal dead redrive
    delete_dead cancel purge delete resize configure weights limits pause resume apply export plan
    assign unassign assigned bind unbind bindings route doctor lua embedded worker edge gateway
    gateway_token pipeline
"""
ALL: Final[tuple[ModuleType, ...]] = tuple(import_module(f"{__name__}.{name}") for name in _ORDER.split())
"""The commands, in the order in which the help lists them."""
