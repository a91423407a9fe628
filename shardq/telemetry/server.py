"""The server that a client talks to, as spans and metrics name it, from its URL."""

from __future__ import annotations

from typing import Any, NamedTuple

from shardq.drivers import Target
from shardq.telemetry.instruments import ADDRESS, PORT
from shardq.telemetry.sample import Labels


class MeasuredServer(NamedTuple):
    """An address, and a port: for a Unix socket its path, and no port."""

    address: str = ""
    port: int | None = None

    @property
    def labels(self) -> Labels:
        """Return it as labels of a metric."""
        return tuple((name, str(value)) for name, value in self.attributes.items())

    @property
    def attributes(self) -> dict[str, Any]:
        """Return it as attributes of a span."""
        found = {ADDRESS: self.address or None, PORT: self.port}
        return {name: value for name, value in found.items() if value is not None}


def server_of(target: Target) -> MeasuredServer:
    """Return the server that a URL names: for a cluster or sentinels the first one."""
    if target.addresses:
        return MeasuredServer(*target.addresses[0])
    if "path" in target.settings:
        return MeasuredServer(str(target.settings["path"]))
    return MeasuredServer(target.settings.get("host", "localhost"), target.settings.get("port", 6379))
