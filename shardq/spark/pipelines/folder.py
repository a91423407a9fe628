"""A folder of any file system that Spark knows, given as a path or a URL."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import SparkSession

from shardq.spark.privates import file_system, hadoop_path, partition_folder, text_of

DRAFT: Final = ".new"
"""How the name of a file ends that replaces another one when it is whole."""


@dataclass(slots=True)
class Folder:
    """The contents of the folder; parts of a path are joined with it."""

    spark: SparkSession
    path: str
    _fs: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.path = self.path.rstrip("/") or "/"
        self._fs = file_system(self.spark, self._at())

    def _at(self, *parts: str) -> Any:
        return hadoop_path(self.spark, self.to(*parts))

    def to(self, *parts: str) -> str:
        """The path to something in the folder."""
        return "/".join((self.path, *parts))

    def names(self, *parts: str) -> list[str]:
        """The names of what is there, sorted; none if there is no such folder."""
        path = self._at(*parts)
        return sorted(each.getPath().getName() for each in self._fs.listStatus(path)) if self._fs.exists(path) else []

    def numbers(self, *parts: str) -> list[int]:
        """The names there that are numbers, as Spark's checkpoints have them."""
        return sorted(int(name) for name in self.names(*parts) if name.isdecimal())

    def has(self, *parts: str) -> bool:
        """Whether there is anything at a path, in which names may have globs."""
        return bool(self._fs.globStatus(self._at(*parts)))

    def delete(self, *parts: str) -> None:
        """Remove a folder with all that is in it, if it is there."""
        self._fs.delete(self._at(*parts), True)

    def rename(self, old: tuple[str, ...], new: tuple[str, ...]) -> bool:
        """Rename; whether it worked."""
        return bool(self._fs.rename(self._at(*old), self._at(*new)))

    def lines(self, *parts: str) -> list[str]:
        """The lines of a small text file."""
        with closing(self._fs.open(self._at(*parts))) as stream:
            return text_of(self.spark, stream).splitlines()

    def write_json(self, value: dict[str, Any], *parts: str) -> None:
        """Write a JSON file over one that may be there. Killed meanwhile, it leaves one of both, after `mend`.

        Not all file systems can rename over a file in one step: so the new one is whole before the old one goes.
        """
        draft = (*parts[:-1], f"{parts[-1]}{DRAFT}")
        self.write(json.dumps(value).encode(), *draft)
        self.delete(*parts)
        self.rename(draft, parts)

    def mend(self, *parts: str) -> None:
        """Put in place what a `write_json` in this folder had written whole when it was killed."""
        names = set(self.names(*parts))
        for draft in names:
            name = draft.removesuffix(DRAFT)
            if draft.endswith(DRAFT) and name not in names and self._is_whole(*parts, draft):
                self.rename((*parts, draft), (*parts, name))

    def _is_whole(self, *parts: str) -> bool:
        """Whether this is a JSON object, which the beginning of one is not."""
        try:
            return isinstance(json.loads("".join(self.lines(*parts))), dict)
        except ValueError:
            return False

    def write(self, content: bytes, *parts: str) -> None:
        """Write a file, over one that may be there."""
        with closing(self._fs.create(self._at(*parts), True)) as stream:
            stream.write(bytearray(content))

    def partition(self, column: str, value: str) -> str:
        """The name of the folder that Spark writes the rows with this *value* of a column to."""
        return partition_folder(self.spark, column, value)
