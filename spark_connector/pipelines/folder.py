"""A folder on whatever file system Spark uses (local, HDFS, S3): the operations that checkpoints and tables need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Folder:
    def __init__(self, spark: Any, path: str) -> None:
        self._hadoop = spark._jvm.org.apache.hadoop
        self._path = self._hadoop.fs.Path(path)
        self._files = self._path.getFileSystem(spark._jsc.hadoopConfiguration())
        self._context = self._hadoop.fs.FileContext.getFileContext(self._path.toUri(), self._files.getConf())
        self._overwrite = spark.sparkContext._gateway.new_array(self._hadoop.fs.Options.Rename, 1)
        self._overwrite[0] = self._hadoop.fs.Options.Rename.OVERWRITE
        self._utils = spark._jvm.org.apache.commons.io.IOUtils
        self.path = self._files.makeQualified(self._path).toString()

    def read(self, name: str) -> str | None:
        """A small text file; None if there is none."""
        if not self.exists(name):
            return None
        stream = self._files.open(self._at(name))
        try:
            return str(self._utils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Replaces the file in one step: a reader finds the old or the new text, never a part."""
        partial = f"{name}.partial"
        stream = self._files.create(self._at(partial), True)
        stream.write(text.encode())
        stream.close()
        self._context.rename(self._at(partial), self._at(name), self._overwrite)

    def exists(self, name: str) -> bool:
        return bool(self._files.exists(self._at(name)))

    def delete(self, name: str) -> None:
        self._files.delete(self._at(name), True)

    def move(self, name: str, target: str) -> None:
        self._files.mkdirs(self._at(target).getParent())
        self._context.rename(self._at(name), self._at(target), self._overwrite)

    def walk(self, name: str = "") -> Iterator[str]:
        """Names of all files below, relative to the folder."""
        if not self.exists(name):
            return
        found = self._files.listFiles(self._at(name), True)
        while found.hasNext():
            yield str(found.next().getPath().toString())[len(self.path) + 1 :]

    def _at(self, name: str) -> Any:
        return self._hadoop.fs.Path(self._path, name) if name else self._path
