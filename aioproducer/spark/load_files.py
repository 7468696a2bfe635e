"""Files as DataFrames, and their rows as records: how a load makes them, and an audit expects them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.spark.avro_shape import AvroShape

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["ORDER", "FileFormat", "FilesRefused", "RecordShape", "SourceFiles", "ValueShape", "with_row_order"]


class FilesRefused(Exception):
    """The files, or their columns, are not what was said of them; the message says what to do."""


class FileFormat(StrEnum):
    """What the files are."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    TEXT = "text"


class ValueShape(StrEnum):
    """What a record's value is."""

    JSON = "json"  # an object of all columns
    AVRO = "avro"  # a record of all columns
    RAW = "raw"  # one column as it is


_ENDINGS: Final[Mapping[str, FileFormat]] = {
    ".parquet": FileFormat.PARQUET,
    ".csv": FileFormat.CSV,
    ".json": FileFormat.JSON,
    ".jsonl": FileFormat.JSON,
    ".ndjson": FileFormat.JSON,
    ".txt": FileFormat.TEXT,
    ".log": FileFormat.TEXT,
}
_COMPRESSED: Final = frozenset({".gz", ".bz2", ".zst", ".zstd", ".lz4", ".snappy", ".xz"})

#: A CSV file without a schema is read twice: once for the types.
_DEFAULTS: Final[Mapping[FileFormat, Mapping[str, str]]] = {
    FileFormat.PARQUET: {},
    FileFormat.CSV: {"header": "true", "inferSchema": "true", "mode": "FAILFAST"},
    FileFormat.JSON: {"mode": "FAILFAST"},
    FileFormat.TEXT: {},
}


class _OrderColumns(NamedTuple):
    """From where a row comes; their values in order are the order of the rows."""

    file: str = "_aioproducer_file"
    block: str = "_aioproducer_block"
    row: str = "_aioproducer_row"


ORDER: Final = _OrderColumns()


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """Files, or directories and globs of them, all of one format; ``options`` are those of Spark's reader of it."""

    paths: tuple[str, ...]
    format: FileFormat
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    schema: str | None = None

    @classmethod
    def of(
        cls, paths: Sequence[str], kind: str | None, options: Mapping[str, str], schema: str | None = None
    ) -> SourceFiles:
        """The files, of the format that their names tell where it is None; raises FilesRefused where they do not."""
        chosen = FileFormat(kind) if kind is not None else _told_by(paths)
        return cls(tuple(paths), chosen, {**_DEFAULTS[chosen], **options}, schema)

    def read(self, spark: SparkSession) -> DataFrame:
        """The rows, with the columns of `ORDER`."""
        reader = spark.read.format(self.format).options(**self.options)
        if self.schema is not None:
            reader = reader.schema(self.schema)
        return with_order(self._checked(reader.load(list(self.paths))))

    def names(self, spark: SparkSession) -> Sequence[str]:
        """The files that there are now; none of them is read."""
        return spark.read.format("text").load(list(self.paths)).inputFiles()

    def schema_of(self, spark: SparkSession) -> StructType:
        """The columns of the files; for CSV and JSON without ``schema`` all of them are read to find out."""
        reader = spark.read.format(self.format).options(**self.options)
        if self.schema is not None:
            reader = reader.schema(self.schema)
        return self._checked(reader.load(list(self.paths))).schema

    def read_stream(self, spark: SparkSession, schema: StructType, most: int) -> DataFrame:
        """The rows of the files as a stream, ``most`` files at a time, the oldest first; put `with_row_order` behind it.

        Raises FilesRefused for paths of which Spark cannot make one.
        """
        reader = spark.readStream.format(self.format).options(**self.options).schema(schema)
        return _with_place(reader.option("maxFilesPerTrigger", most).load(self._one_path()))

    def _one_path(self) -> str:
        """A stream has one path; a glob of alternatives is one, too."""
        paths = [path if "://" in path else str(Path(path).absolute()) for path in self.paths]
        if len(paths) == 1:
            return paths[0]
        odd = [path for path in paths if set(path) & set("{},\\")]
        if odd:
            raise FilesRefused(f"{odd[0]!r} has one of the characters {{}},\\ and is not the only path; rename it.")
        return "{" + ",".join(paths) + "}"

    def _checked(self, rows: DataFrame) -> DataFrame:
        if not rows.columns:
            raise FilesRefused(f"There is no column in {', '.join(self.paths)}.")
        return rows


def _with_place(rows: DataFrame) -> DataFrame:
    """The rows with the file and the block from which each comes."""
    from pyspark.sql import functions as f

    metadata = f.col("_metadata")
    return rows.withColumn(
        ORDER.file, f.struct(metadata["file_modification_time"].alias("at"), metadata["file_path"].alias("path"))
    ).withColumn(ORDER.block, metadata["file_block_start"])


def with_row_order(rows: DataFrame) -> DataFrame:
    """Those rows with their place among the rows of one task, which has the rows of a block in order."""
    from pyspark.sql import functions as f

    return rows.withColumn(ORDER.row, f.monotonically_increasing_id())


def with_order(rows: DataFrame) -> DataFrame:
    """The rows with all columns of `ORDER`: files by their time, then by name; a file's rows as they stand in it."""
    return with_row_order(_with_place(rows))


@dataclass(frozen=True, slots=True)
class RecordShape:
    """Which column is the key, and what the value is made of."""

    value: ValueShape = ValueShape.JSON
    key: str | None = None
    value_column: str = "value"
    avro: AvroShape = field(default_factory=AvroShape)

    def check(self, schema: StructType) -> None:
        """Raise what `of` raises where rows of that schema lack a column, or cannot be Avro."""
        columns: list[dict[str, Any]] = schema.jsonValue()["fields"]
        self._check([column["name"] for column in columns])
        if self.value is ValueShape.AVRO:
            self.avro.settled(columns)

    def of(self, rows: DataFrame, keep: Sequence[str] = ()) -> DataFrame:
        """The rows as records: ``key`` and ``value``, of type binary, and the columns of `ORDER` and of ``keep``.

        The value of a JSON record has all columns, the key's too, null where there is none: ``{"a":1,"b":null}``; so has
        that of an Avro record. Raises FilesRefused where a column is not there or cannot be bytes, and what `AvroShape`
        does.
        """
        order = [name for name in (*ORDER, *keep) if name in rows.columns]
        data = [name for name in rows.columns if name not in order]
        self._check(data)
        records = rows.select(self._key(rows).alias("key"), self._value(rows, data).alias("value"), *order)
        return self.avro.encode(records) if self.value is ValueShape.AVRO else records

    def _check(self, columns: Sequence[str]) -> None:
        needed = [self.key] if self.key is not None else []
        if self.value is ValueShape.RAW:
            needed.append(self.value_column)
        for name in needed:
            if name not in columns:
                what = "the value" if name == self.value_column and self.value is ValueShape.RAW else "the key"
                raise FilesRefused(
                    f"There is no column {name!r} for {what}; the files have {', '.join(columns)}. Name one with "
                    f"{'--value' if what == 'the value' else '--key'}."
                )

    def _key(self, rows: DataFrame) -> Column:
        from pyspark.sql import functions as f

        return f.lit(None).cast("binary") if self.key is None else _as_bytes(rows, self.key)

    def _value(self, rows: DataFrame, columns: Sequence[str]) -> Column:
        from pyspark.sql import functions as f

        if self.value is ValueShape.RAW:
            return _as_bytes(rows, self.value_column)
        whole = f.struct(*(rows[_quoted(name)] for name in columns))
        if self.value is ValueShape.AVRO:
            return whole
        return f.to_json(whole, {"ignoreNullFields": "false"}).cast("binary")


def _as_bytes(rows: DataFrame, name: str) -> Column:
    kind = rows.schema[name].dataType.simpleString()
    if kind == "binary":
        return rows[_quoted(name)]
    if kind.startswith(("array", "map", "struct")):
        raise FilesRefused(f"The column {name!r} is of type {kind}, which cannot be bytes; choose another one.")
    return rows[_quoted(name)].cast("string").cast("binary")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _told_by(paths: Sequence[str]) -> FileFormat:
    found = {_ENDINGS.get(_ending(path)) for path in paths}
    chosen = found.pop() if len(found) == 1 else None
    if chosen is None:
        raise FilesRefused(
            f"What format {', '.join(paths)} have cannot be told from their names; say so with --format "
            f"{'|'.join(FileFormat)}."
        )
    return chosen


def _ending(path: str) -> str:
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    while suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""
