"""One module per command. Each has `register(commands)`, which adds its parser and names the function that runs it."""

from __future__ import annotations

from types import ModuleType

from shardq.cli.commands import (
    apply,
    assign,
    assigned,
    bind,
    bindings,
    cancel,
    configure,
    dead,
    delete,
    delete_dead,
    doctor,
    edge,
    embedded,
    export,
    gateway,
    gateway_token,
    journal,
    len,  # noqa: A004 (the queue's own verb)
    limits,
    lua,
    message,
    pause,
    peek,
    pipeline,
    plan,
    purge,
    queues,
    read,
    redrive,
    resize,
    result,
    resume,
    route,
    stats,
    tenant,
    tenants,
    top,
    unassign,
    unbind,
    weights,
    worker,
    write,
)

ALL: tuple[ModuleType, ...] = (
    write, read, len, stats, queues, peek, message, result, tenants, tenant, top, journal, dead, redrive,
    delete_dead, cancel, purge, delete, resize, configure, weights, limits, pause, resume,
    apply, export, plan, assign, unassign, assigned, bind, unbind, bindings, route, doctor, lua, embedded, worker,
    edge, gateway, gateway_token, pipeline,
)  # fmt: skip
"""The commands, in the order in which the help lists them."""
