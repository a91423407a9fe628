"""A folder of any file system that Spark knows. Small files are written into it whole, and read from it."""

from __future__ import annotations

from os import PathLike, fspath
from typing import Any

from pyspark.sql import SparkSession

from shardq.errors import ConfigError


class Folder:
    """A folder, by its path or URL. It need not be there: what is written makes it. ConfigError for an empty path."""

    def __init__(self, spark: SparkSession, path: str | PathLike[str]) -> None:
        if not fspath(path):
            raise ConfigError("the folder's path must not be empty")
        self.path = fspath(path).rstrip("/")
        self._jvm: Any = spark._jvm  # the only way to Hadoop's file systems
        settings = spark._jsparkSession.sessionState().newHadoopConf()
        self._fs = self._place("").getFileSystem(settings)

    def within(self, name: str) -> str:
        """The path of what is called *name* in it."""
        return f"{self.path}/{name}"

    def names(self, name: str = "") -> list[str]:
        """What there is in its folder *name*, in order; nothing if there is no such folder."""
        place = self._place(name)
        return sorted(each.getPath().getName() for each in self._fs.listStatus(place)) if self._fs.exists(place) else []

    def read(self, name: str) -> str | None:
        """The text of the file *name*; None if there is none."""
        place = self._place(name)
        if not self._fs.exists(place):
            return None
        file = self._fs.open(place)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(file, "UTF-8"))
        finally:
            file.close()

    def write(self, name: str, content: bytes) -> None:
        """Write a file, over the one that is there."""
        file = self._fs.create(self._place(name), True)
        try:
            file.write(content)
        finally:
            file.close()

    def _place(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.within(name))
