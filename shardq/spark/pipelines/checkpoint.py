"""The checkpoint of an archive's table: how far its query is, and which number a batch has in the archive.

Spark numbers the batches of a checkpoint from 0. When an archive is adopted, a new checkpoint begins, `NAME-from-13`,
whose first batch has the number 13 in the archive. The file `NAME-from-13.json` says where in the queues it begins.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from shardq.spark.pipelines.folder import Folder

CHECKPOINTS: Final = "_checkpoints"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The newest checkpoint of a table; `base` is the number of its first batch, 0 unless it was adopted."""

    folder: Folder
    table: str
    base: int

    @classmethod
    def newest(cls, folder: Folder, table: str) -> Checkpoint:
        """The one that is used now."""
        folder.mend(CHECKPOINTS)
        begun = [re.fullmatch(rf"{table}-from-(\d{{12}})\.json", name) for name in folder.names(CHECKPOINTS)]
        return cls(folder, table, max((int(each[1]) for each in begun if each), default=0))

    @classmethod
    def begin(cls, folder: Folder, table: str, base: int, points: dict[str, Any]) -> Checkpoint:
        """A new one, whose query begins at *points*, by queue."""
        found = cls(folder, table, base)
        folder.write_json(points, CHECKPOINTS, f"{found.name}.json")
        return found

    @property
    def name(self) -> str:
        """Its folder's name."""
        return f"{self.table}-from-{self.base:012d}" if self.base else self.table

    @property
    def path(self) -> str:
        """Where Spark keeps it."""
        return self.folder.to(CHECKPOINTS, self.name)

    @property
    def planned(self) -> int:
        """The number of the newest batch that was begun. One below `base`: none."""
        return self.base + max(self.folder.numbers(CHECKPOINTS, self.name, "offsets"), default=-1)

    @property
    def finished(self) -> int:
        """The number of the newest batch that Spark will not replay. One below `base`: none."""
        return self.base + max(self.folder.numbers(CHECKPOINTS, self.name, "commits"), default=-1)

    def points(self) -> dict[str, Any]:
        """Where its query begins, by queue; empty if at the oldest rows."""
        if not self.base:
            return {}
        return dict(json.loads("".join(self.folder.lines(CHECKPOINTS, f"{self.name}.json"))))

    def queues(self) -> frozenset[str]:
        """The queues whose rows it knows to be archived, up to some point."""
        if self.planned < self.base:
            return frozenset(self.points())
        lines = self.folder.lines(CHECKPOINTS, self.name, "offsets", str(self.planned - self.base))
        return frozenset(json.loads(lines[-1]))

    def starting(self, queues: list[str]) -> str:
        """The option `startingOffsets`, the same each time: it counts until the first batch is finished."""
        points = self.points()
        return json.dumps(dict.fromkeys(queues, "earliest") | points) if points else "earliest"
