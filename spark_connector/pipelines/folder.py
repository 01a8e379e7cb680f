"""A folder on whatever file system Spark uses (local, HDFS, S3): the operations that checkpoints and tables need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class Folder:
    """Names are relative to the folder, which need not exist."""

    def __init__(self, spark: Any, path: str) -> None:
        self._hadoop = spark._jvm.org.apache.hadoop
        self._path = self._hadoop.fs.Path(path)
        self._files = self._path.getFileSystem(spark._jsc.hadoopConfiguration())
        self._local = str(self._files.getScheme()) == "file"
        # Hadoop's local file system puts a checksum file beside each, and the two cannot be replaced in one step.
        self._plain = self._files.getRawFileSystem() if self._local else self._files
        self._context = self._hadoop.fs.FileContext.getFileContext(self._path.toUri(), self._files.getConf())
        self._overwrite = spark.sparkContext._gateway.new_array(self._hadoop.fs.Options.Rename, 1)
        self._overwrite[0] = self._hadoop.fs.Options.Rename.OVERWRITE
        self._utils = spark._jvm.org.apache.commons.io.IOUtils
        self.path = self._files.makeQualified(self._path).toString()

    def read(self, name: str) -> str | None:
        """A small text file; None if there is none."""
        if not self.exists(name):
            return None
        stream = self._plain.open(self._at(name))
        try:
            return str(self._utils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Replaces the file in one step: a reader finds the old or the new text, never a part or nothing."""
        partial = f"{name}.partial"
        stream = self._plain.create(self._at(partial), True)
        stream.write(text.encode())
        stream.close()
        self._replace(self._at(partial), self._at(name))

    def exists(self, name: str) -> bool:
        return bool(self._files.exists(self._at(name)))

    def delete(self, name: str) -> None:
        """A file, or a folder with all that is in it; nothing if there is none."""
        self._files.delete(self._at(name), True)

    def move(self, name: str, target: str) -> None:
        """A file to another place, in one step."""
        self._files.mkdirs(self._at(target).getParent())
        self._replace(self._at(name), self._at(target))

    def walk(self, name: str = "") -> Iterator[str]:
        """Names of all files below, relative to the folder."""
        if not self.exists(name):
            return
        found = self._files.listFiles(self._at(name), True)
        while found.hasNext():
            yield str(found.next().getPath().toString())[len(self.path) + 1 :]

    def _replace(self, source: Any, target: Any) -> None:
        if not self._local:
            self._context.rename(source, target, self._overwrite)
        # FileContext would delete the local target first; this is rename(2).
        elif not self._plain.rename(source, target):
            raise OSError(f"{source} could not be renamed to {target}")

    def _at(self, name: str) -> Any:
        return self._hadoop.fs.Path(self._path, name) if name else self._path
