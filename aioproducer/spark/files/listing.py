"""Finds the files that a load or an audit is told of, in the order in which their rows count: by time, then by name."""

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
    """The files, or their columns, are not what was said of them; the message says what to do."""


class FoundFile(NamedTuple):
    """A file with something in it, as Hadoop names it. Files are in the order of ``at`` (milliseconds) and ``url``."""

    at: int
    url: str
    path: str
    size: int


#: Options of Spark's readers that say which files of a directory count, in small letters.
_FILTERS: Final = frozenset({"recursivefilelookup", "pathglobfilter", "modifiedbefore", "modifiedafter"})

#: Characters that have a meaning in Hadoop's globs.
_GLOB: Final = re.compile(r"([{}\[\]*?\\])")

#: Names of files that are compressed. Those of an archive Spark may unpack, but what is in it are not lines alone.
_COMPRESSED: Final = re.compile(
    r"(?P<archive>\.(?:tar(?:\.\w+)?|tgz|tbz2?|txz|tzst|zip|7z|rar|jar))$"
    r"|\.(?:gz|bz2|deflate|lz4|snappy|sz|zst|zstd|xz|lzma|lzo|lz|br|z)$"
)

#: Since then Spark reads what is named .zstd by itself; Hadoop knows .zst alone.
_READS_ZSTD: Final = (4, 3)

#: Summaries that writers of Parquet once left beside the files; there is no row in them.
_SUMMARIES: Final = frozenset({"_metadata", "_common_metadata"})


@dataclass(frozen=True, slots=True)
class _Root:
    """What one of the given paths, or one match of a glob, is."""

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
        """Whether nobody would miss it: globs leave dot files alone, and an empty file has no rows."""
        return self.is_hidden and self.is_file and (not self.size or (self.name[0] == "." and not self.is_named))


def find_files(spark: SparkSession, paths: Sequence[str], options: Mapping[str, str]) -> Sequence[FoundFile]:
    """The files of those paths, oldest first, each once; none of them is read, and empty ones are left out.

    A path is the file or directory of that very name, or else a glob of Hadoop's. Of a directory that is everything
    below it, but what Spark hides there: names that begin with ``_`` or ``.``. ``options``: of Spark's reader.

    Raises FilesRefused for a path without a file, for a hidden one that is named, and what Spark raises.
    """
    from pyspark.sql import functions as f

    roots = [root for path in paths for root in _roots(spark, path) if not root.is_left_out]
    for root in roots:
        if root.is_hidden and root.is_file:
            raise FilesRefused(
                f"{root.path} would not be read: files whose name begins with _ or . are hidden ones for Spark. Rename "
                "it, or leave it out."
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
    """The path as a glob that matches nothing else."""
    return _GLOB.sub(r"\\\1", path)


def plain_url(url: str) -> str:
    """The URL as `FoundFile` has it, whether Spark writes an empty host or leaves it out."""
    return re.sub(r"^file:/+", "file:/", url)


def partition_base(files: Iterable[FoundFile]) -> str | None:
    """The directory below which directories ``column=value`` hold the files; None where there are none.

    They are columns wherever the path that was named begins. Raises FilesRefused where files would have different ones,
    for Spark would leave some of the files out.
    """
    found: dict[tuple[str, tuple[str, ...]], str] = {}
    for file in files:
        found.setdefault(_partitioned(file.path), file.path)
    if len(found) > 1:
        one, other, *_ = sorted(found, reverse=True)  # what has none is last
        raise FilesRefused(
            f"Directories named column=value become columns, and {found[one]} has {_describe(one)}, but {found[other]} has "
            f"{_describe(other)}. Load them one after the other."
        )
    base, columns = next(iter(found)) if len(found) == 1 else ("", ())
    return base if columns else None


def partition_values(path: str) -> Mapping[str, str]:
    """What the directories ``column=value`` right above a file say, as they are spelled there."""
    return dict(_column(name) for name in path.split("/")[_base(path) : -1])


def _partitioned(path: str) -> tuple[str, tuple[str, ...]]:
    columns = tuple(partition_values(path))
    return "/".join(path.split("/")[: _base(path)]) if columns else "", columns


def _base(path: str) -> int:
    """How many directories are above those that are columns."""
    directories = path.split("/")[:-1]
    while directories and directories[-1].find("=") > 0:
        directories.pop()
    return len(directories)


def _column(directory: str) -> tuple[str, str]:
    name, _, value = directory.partition("=")
    return name, value


def check_compression(spark: SparkSession, files: Iterable[FoundFile]) -> None:
    """Raise FilesRefused for files of lines that Spark would take for text, though they are compressed."""
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
                f"{file.path} is compressed in a way that Spark does not read, and would be taken for text. Unpack it, or "
                "compress it with gzip (.gz), bzip2 (.bz2) or zstd (.zst)."
            )


def _describe(partitioned: tuple[str, tuple[str, ...]]) -> str:
    base, columns = partitioned
    return f"{', '.join(columns)} below {base}" if columns else "none"


def _version(spark: SparkSession) -> tuple[int, ...]:
    return tuple(int(part) for part in spark.version.split(".")[:2])


def _roots(spark: SparkSession, path: str) -> Sequence[_Root]:
    """PySpark has no words for a file system; Hadoop's are those that Spark itself would ask."""
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
