"""An object with a queue's name and settings: the tasks of a queue, which web and worker both import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from shardq.errors import ConfigError
from shardq.model.queue_settings import QueueSettings


class Declaration(Protocol):
    """A queue's name, and its settings."""

    @property
    def queue_name(self) -> str:
        """The queue's name."""

    @property
    def settings(self) -> QueueSettings:
        """The queue's settings."""


def declaration_of(
    queue: str | Declaration, settings: Mapping[str, Any], create: bool | None
) -> tuple[Any, Mapping[str, Any], bool | None]:
    """Return name and settings of a *queue*, and whether its first use creates it.

    It is given by its name, *settings* and *create*, or as what has name and settings, and then is created.
    """
    if isinstance(queue, str) or not hasattr(queue, "queue_name"):
        return queue, settings, create
    if settings:
        raise ConfigError("give the settings where the tasks are declared: Tasks(queue, ...), and not here")
    return queue.queue_name, queue.settings, True if create is None else create
