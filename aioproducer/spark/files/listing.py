"""Finds the files of a load or an audit, in the order of their rows: by time, then by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "FilesRefused",
    "FoundFile",
    "check_compression",
    "escaped",
    "find_files",
    "partition_base",
    "partition_values",
    "plain_url",
]


class FilesRefused(Exception):
    """The files or their columns do not match the arguments; the message says what to do."""


class FoundFile(NamedTuple):
    """A non-empty file, named as in Hadoop. Files are ordered by ``at`` (milliseconds) and ``url``."""

    at: int
    url: str
    path: str
    size: int


#: Options of Spark's readers that select files of a directory, in lower case.
_FILTERS: Final = frozenset({"recursivefilelookup", "pathglobfilter", "modifiedbefore", "modifiedafter"})

#: Special characters in Hadoop's globs.
_GLOB: Final = re.compile(r"([{}\[\]*?\\])")

#: Names of compressed files. Spark may unpack an archive, but it contains more than lines.
_COMPRESSED: Final = re.compile(
    r"(?P<archive>\.(?:tar(?:\.\w+)?|tgz|tbz2?|txz|tzst|zip|7z|rar|jar))$"
    r"|\.(?:gz|bz2|deflate|lz4|snappy|sz|zst|zstd|xz|lzma|lzo|lz|br|z)$"
)

#: Since this version Spark reads .zstd files itself; Hadoop only knows .zst.
_READS_ZSTD: Final = (4, 3)

#: Summary files that old Parquet writers left beside the data; they have no rows.
_SUMMARIES: Final = frozenset({"_metadata", "_common_metadata"})


@dataclass(frozen=True, slots=True)
class _Root:
    """One of the given paths, or one match of a glob."""

    path: str
    name: str
    is_file: bool
    size: int
    is_named: bool

    @property
    def is_hidden(self) -> bool:
        return self.name.startswith(("_", ".")) and self.name not in _SUMMARIES

    @property
    def is_left_out(self) -> bool:
        """Whether it can be skipped silently: globs ignore dot files, and an empty file has no rows."""
        return self.is_hidden and self.is_file and (not self.size or (self.name[0] == "." and not self.is_named))


def find_files(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]) -> Sequence[FoundFile]:
    """The files of those paths, oldest first, each once, without empty ones; does not read them.

    A path is the file or directory of exactly that name, or else a Hadoop glob. A directory stands for everything below
    it, except what Spark hides: names that begin with ``_`` or ``.``. ``options``: of Spark's reader.

        Raises FilesRefused for a path without a file, for a hidden file that is named, and what Spark raises.
    """
    from pyspark.sql import functions as f

    roots = [root for path in paths for root in _roots(spark, path) if not root.is_left_out]
    for root in roots:
        if root.is_hidden and root.is_file:
            raise FilesRefused(
                f"{root.path} would not be read: Spark hides files whose names begin with _ or . Rename it, or leave "
                "it out."
            )
    wanted = list(dict.fromkeys(root.path for root in roots))
    if not wanted:
        return []
    filters = {name: value for name, value in options.items() if name.lower() in _FILTERS}
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true").options(**filters)
    at = f.unix_millis("_metadata.file_modification_time")
    rows = reader.load([escaped(path) for path in wanted]).select(
        at, "_metadata.file_path", "path", "_metadata.file_size"
    )
    return sorted({FoundFile(*row) for row in rows.collect()})


def escaped(path: str) -> str:
    """The path as a glob that matches only itself."""
    return _GLOB.sub(r"\\\1", path)


def plain_url(url: str) -> str:
    """The URL in `FoundFile`'s form, whether or not Spark writes an empty host."""
    return re.sub(r"^file:/+", "file:/", url)


def partition_base(files: Iterable[FoundFile]) -> str | None:
    """The directory below which directories ``column=value`` hold the files; None if there are none.

    They are columns wherever the given path begins. Raises FilesRefused if the files would have different ones, because
    Spark would skip some of the files.
    """
    found: dict[tuple[str, tuple[str, ...]], str] = {}
    for file in files:
        found.setdefault(_partitioned(file.path), file.path)
    if len(found) > 1:
        one, other, *_ = sorted(found, reverse=True)  # files without such a directory are last
        raise FilesRefused(
            f"Directories named column=value become columns, and {found[one]} has {_describe(one)}, but {found[other]} has "
            f"{_describe(other)}. Load them one after the other."
        )
    base, columns = next(iter(found)) if len(found) == 1 else ("", ())
    return base if columns else None


def partition_values(path: str) -> Mapping[str, str]:
    """The values of the directories ``column=value`` right above a file, spelled as there."""
    return dict(_column(name) for name in path.split("/")[_base(path) : -1])


def _partitioned(path: str) -> tuple[str, tuple[str, ...]]:
    columns = tuple(partition_values(path))
    return "/".join(path.split("/")[: _base(path)]) if columns else "", columns


def _base(path: str) -> int:
    """The number of directories above those that are columns."""
    directories = path.split("/")[:-1]
    while directories and directories[-1].find("=") > 0:
        directories.pop()
    return len(directories)


def _column(directory: str) -> tuple[str, str]:
    name, _, value = directory.partition("=")
    return name, value


def check_compression(spark: SparkSession, files: Iterable[FoundFile]) -> None:
    """Raise FilesRefused for compressed files of lines that Spark would read as plain text."""
    jvm: Any = spark._jvm  # pyright: ignore[reportPrivateUsage]
    context: Any = spark.sparkContext
    codecs = jvm.org.apache.hadoop.io.compress.CompressionCodecFactory(context._jsc.hadoopConfiguration())
    for file in files:
        found = _COMPRESSED.search(file.path.lower())
        if found is None:
            continue
        is_archive = found["archive"] is not None
        if found[0] == ".zstd" and _version(spark) >= _READS_ZSTD:
            continue
        if is_archive or codecs.getCodec(jvm.org.apache.hadoop.fs.Path(file.path)) is None:
            raise FilesRefused(
                f"{file.path} has a compression that Spark does not support, and would be read as plain text. Unpack it, or "
                "compress it with gzip (.gz), bzip2 (.bz2) or zstd (.zst)."
            )


def _describe(partitioned: tuple[str, tuple[str, ...]]) -> str:
    base, columns = partitioned
    return f"{', '.join(columns)} below {base}" if columns else "none"


def _version(spark: SparkSession) -> tuple[int, ...]:
    return tuple(int(part) for part in spark.version.split(".")[:2])


def _roots(spark: SparkSession, path: str) -> Sequence[_Root]:
    """PySpark has no file system API, so this uses Hadoop's, as Spark does."""
    jvm: Any = spark._jvm  # pyright: ignore[reportPrivateUsage]
    context: Any = spark.sparkContext
    hadoop_path = jvm.org.apache.hadoop.fs.Path(path)
    system = hadoop_path.getFileSystem(context._jsc.hadoopConfiguration())
    if system.exists(hadoop_path):
        return [_root(system.getFileStatus(hadoop_path), is_named=True)]
    found = system.globStatus(hadoop_path)
    if not found:
        raise FilesRefused(f"There is no file {path}.")
    return [_root(status, is_named=False) for status in found]


def _root(status: Any, *, is_named: bool) -> _Root:
    path = status.getPath()
    return _Root(path.toString(), path.getName(), bool(status.isFile()), int(status.getLen()), is_named)
