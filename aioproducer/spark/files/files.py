"""Files as DataFrames, and their rows as records, as a load writes them and an audit expects them."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioproducer.spark.files.avro_shape import AvroShape
from aioproducer.spark.files.bad_rows import check_mode, describe_bad_row, with_text_checked
from aioproducer.spark.files.columns import (
    column_paths,
    faithful_types,
    unfaithful_columns,
    with_faithful_directories,
)
from aioproducer.spark.files.listing import (
    FilesRefused,
    FoundFile,
    check_compression,
    escaped,
    find_files,
    partition_base,
    partition_values,
    plain_url,
)
from aioproducer.spark.session.errors import NO_TEXT, cause_of, is_of_bad_row, is_of_headers, spark_errors

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

__all__ = ["ORDER", "FileFormat", "FilesRefused", "RecordShape", "SourceFiles", "ValueShape"]


class FileFormat(StrEnum):
    """The format of the files."""

    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"
    TEXT = "text"


class ValueShape(StrEnum):
    """The form of a record's value."""

    JSON = "json"  # an object of all columns
    AVRO = "avro"  # a record of all columns
    RAW = "raw"  # one column unmodified


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

#: CSV is as in RFC 4180. A file without a schema is read twice: once for the types.
_DEFAULTS: Final[Mapping[FileFormat, Mapping[str, str]]] = {
    FileFormat.PARQUET: {"mergeSchema": "true"},
    FileFormat.CSV: {
        "header": "true",
        "escape": '"',
        "multiLine": "true",
        "enforceSchema": "false",
        "mode": "FAILFAST",
    },
    FileFormat.JSON: {"mode": "FAILFAST"},
    FileFormat.TEXT: {},
}


#: How JSON values are written: all columns, and times to the microsecond, where Spark's own format keeps milliseconds.
_JSON: Final[Mapping[str, str]] = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


class _OrderColumns(NamedTuple):
    """The origin of a row; sorting by these columns gives the order of the rows."""

    file: str = "_aioproducer_file"
    block: str = "_aioproducer_block"
    row: str = "_aioproducer_row"


ORDER: Final = _OrderColumns()


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """Files, directories and globs, all of one format; ``options`` are those of Spark's reader for it."""

    paths: tuple[str, ...]
    format: FileFormat
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    schema: str | None = None

    @classmethod
    def of(
        cls, paths: Sequence[str], kind: str | None, options: Mapping[str, str], schema: str | None = None
    ) -> SourceFiles:
        """The files; a format of None is taken from their names. Raises FilesRefused if the names do not show it."""
        chosen = FileFormat(kind) if kind is not None else _format_of(paths)
        wrong_mode = check_mode(options)
        if wrong_mode is not None:
            raise FilesRefused(wrong_mode)
        given = {name.lower() for name in options}  # Spark's options are case-insensitive
        defaults = {name: value for name, value in _DEFAULTS[chosen].items() if name.lower() not in given}
        return cls(tuple(paths), chosen, {**defaults, **options}, schema)

    def read(self, spark: SparkSession) -> DataFrame:
        """The rows of all files, with the columns of `ORDER`. Raises FilesRefused."""
        files = self.find(spark)
        return self.rows(spark, self.schema_of(spark, files), files)

    def find(self, spark: SparkSession) -> Sequence[FoundFile]:
        """The existing files, in order; does not read them. Raises what `find_files` and `check_compression` do."""
        files = find_files(spark, self.paths, self.options)
        if self.format is not FileFormat.PARQUET:
            check_compression(spark, files)
        return files

    def schema_of(self, spark: SparkSession, files: Sequence[FoundFile]) -> StructType:
        """The columns of these files; without ``schema`` all CSV and JSON files are read to infer them.

        CSV columns become numbers, booleans and dates only if every value would be written exactly as it is in the file,
        unless Spark's option inferSchema is set.

        Raises FilesRefused if there is no file, or no column in them.
        """
        if not files:
            raise FilesRefused(f"All files are empty: {', '.join(self.paths)}.")
        with self._refusing(spark, files, None):
            schema = self._load(spark, files, self.schema, self._to_find_columns(files)).schema
        if not schema.names:
            raise FilesRefused(f"The files have no columns: {', '.join(self.paths)}.")
        garbled = next((name for name in schema.names if "\ufffd" in name), None)
        if garbled is not None and self._is_text_checked:
            raise FilesRefused(f"The name of the column {garbled!r}{NO_TEXT}")
        if self.schema is not None:
            return schema
        schema = with_faithful_directories(schema, files)
        return self._with_types(spark, schema, files) if self._finds_types else schema

    def check_added(self, spark: SparkSession, schema: StructType, files: Sequence[FoundFile]) -> None:
        """Raise FilesRefused if these files do not fit the schema with which the load began.

        They have columns that the schema lacks, or values that would be written differently.
        """
        if self.schema is not None or not files:
            return
        if self._finds_types:
            self._check_types(spark, schema, files)
            return
        new = column_paths(self.schema_of(spark, files)) - column_paths(schema)
        if new:
            raise FilesRefused(
                f"The new files have the column {min(new)}, which the load did not have when it began, so it would be left "
                "out. Load them with another --id, or name the columns there with --schema."
            )

    @property
    def _finds_types(self) -> bool:
        return self.format is FileFormat.CSV and "inferschema" not in {name.lower() for name in self.options}

    def _with_types(self, spark: SparkSession, schema: StructType, files: Sequence[FoundFile]) -> StructType:
        from pyspark.sql.types import StructField, StructType

        text = _text_columns(schema, files)
        with self._refusing(spark, files, schema):
            types = faithful_types(self._load(spark, files, schema), text)
        return StructType(
            [StructField(each.name, _type(types[each.name])) if each.name in types else each for each in schema.fields]
        )

    def _check_types(self, spark: SparkSession, schema: StructType, files: Sequence[FoundFile]) -> None:
        from pyspark.sql.types import StringType, StructField, StructType

        data = _data_columns(schema, files)
        text = StructType([StructField(e.name, StringType()) if e.name in data else e for e in schema.fields])
        kinds = {each.name: each.dataType.simpleString() for each in schema.fields if each.name in data}
        types = {name: kind for name, kind in kinds.items() if kind != "string"}  # as strings all values stay unchanged
        with self._refusing(spark, files, text):
            found = unfaithful_columns(self._load(spark, files, text), types)
        if found:
            raise FilesRefused(
                f"When the load began, {found[0]} had type {types[found[0]]}, but the new files have values that would be "
                "written differently as that. Load them with another --id, and set the column types there with --schema."
            )

    def rows(self, spark: SparkSession, schema: StructType, files: Sequence[FoundFile]) -> DataFrame:
        """The rows of exactly these files, with the columns of `ORDER`; ``schema`` is the result of `schema_of`.

        Raises FilesRefused if Spark would skip one of them.
        """
        rows = self._load(spark, files, schema)
        found = {plain_url(url) for url in rows.inputFiles()}
        differing = found.symmetric_difference(plain_url(file.url) for file in files)
        if differing:
            raise FilesRefused(f"Spark would read other files than those found; they differ by {min(differing)}.")
        placed = with_order(rows)
        if not self._is_text_checked:
            return placed
        return with_text_checked(placed, _text_columns(schema, files), placed[ORDER.file]["path"])

    @property
    def _is_text_checked(self) -> bool:
        """Whether invalid UTF-8 is refused, because no encoding was given."""
        said = {name.lower() for name in self.options}
        return self.format is FileFormat.CSV and not said & {"encoding", "charset"}

    def why(
        self, spark: SparkSession, error: BaseException, files: Sequence[FoundFile], schema: StructType | None
    ) -> str:
        """The cause of an error that Spark raised while reading these files, which may be one of their rows."""
        if is_of_bad_row(error):
            return describe_bad_row(spark, error, self.format is FileFormat.JSON, self.options, schema, files)
        return cause_of(error)

    @contextmanager
    def _refusing(
        self, spark: SparkSession, files: Sequence[FoundFile], schema: StructType | None
    ) -> Generator[None, None, None]:
        """Raise FilesRefused if Spark stops in the block because of the files' contents."""
        try:
            yield
        except spark_errors() as error:
            if is_of_headers(error) or is_of_bad_row(error):
                raise FilesRefused(self.why(spark, error, files, schema)) from error
            raise

    def _to_find_columns(self, files: Sequence[FoundFile]) -> Mapping[str, str]:
        """Options only for inferring the columns; raises FilesRefused.

        If rows may have several lines, Spark treats file names as globs a second time when it infers columns: it would find
        none in ``a[1].csv``, or those of ``a1.csv``. A header is also found line by line, except for one with a line break
        in quotes, which is then refused when the rows are read.
        """
        odd = next((file.path for file in files if escaped(file.path) != file.path), None)
        if odd is None or self.schema is not None or not self._is_multi_line:
            return {}
        if self._finds_types:
            return {"multiLine": "false"}
        raise FilesRefused(
            f"Spark cannot infer the columns of {odd}: with multiLine=true it treats the name as a glob. Rename the file, "
            "name the columns with --schema, or use -R multiLine=false if each line is a row."
        )

    @property
    def _is_multi_line(self) -> bool:
        return any(name.lower() == "multiline" and value.lower() == "true" for name, value in self.options.items())

    def _load(
        self,
        spark: SparkSession,
        files: Sequence[FoundFile],
        schema: StructType | str | None,
        options: Mapping[str, str] = MappingProxyType({}),
    ) -> DataFrame:
        reader = spark.read.format(self.format).options(**self.options).options(**options)
        base = partition_base(files)
        if base is not None:
            reader = reader.option("basePath", base)
        if schema is not None:
            reader = reader.schema(schema)
        return reader.load([escaped(file.path) for file in files])


def _data_columns(schema: StructType, files: Sequence[FoundFile]) -> Sequence[str]:
    """The columns that are in the files, not in their directories."""
    directories = set(partition_values(files[0].path))
    return [name for name in schema.names if name not in directories]


def _text_columns(schema: StructType, files: Sequence[FoundFile]) -> Sequence[str]:
    return [name for name in _data_columns(schema, files) if schema[name].dataType.simpleString() == "string"]


def _type(name: str) -> DataType:
    from pyspark.sql.types import BooleanType, DateType, DoubleType, IntegerType, LongType

    return {
        "int": IntegerType(),
        "bigint": LongType(),
        "double": DoubleType(),
        "boolean": BooleanType(),
        "date": DateType(),
    }[name]


def with_order(rows: DataFrame) -> DataFrame:
    """The rows with all columns of `ORDER`: files by time, then by name; rows in their order within the file."""
    from pyspark.sql import functions as f

    metadata = f.col("_metadata")
    file = f.struct(metadata["file_modification_time"].alias("at"), metadata["file_path"].alias("path"))
    placed = rows.withColumn(ORDER.file, file).withColumn(ORDER.block, metadata["file_block_start"])
    return placed.withColumn(ORDER.row, f.monotonically_increasing_id())


@dataclass(frozen=True, slots=True)
class RecordShape:
    """The choice of the key column and of the columns in the value."""

    value: ValueShape = ValueShape.JSON
    key: str | None = None
    value_column: str = "value"
    avro: AvroShape = field(default_factory=AvroShape)

    def check(self, schema: StructType) -> None:
        """Raise what `of` raises if rows of that schema lack a column, or cannot be Avro."""
        columns: list[dict[str, Any]] = schema.jsonValue()["fields"]
        self._check([column["name"] for column in columns])
        if self.value is ValueShape.AVRO:
            self.avro.resolved(columns)

    def of(self, rows: DataFrame, keep: Sequence[str] = ()) -> DataFrame:
        """The rows as records: ``key`` and ``value``, of type binary, and the columns of `ORDER` and of ``keep``.

        JSON and Avro values have all columns, including the key's, and nulls: ``{"a":1,"b":null}``. Raises FilesRefused
        if a column is missing or cannot be bytes, and what `AvroShape` raises.
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
                    f"There is no column {name!r} for {what}; the files have {', '.join(columns)}. Choose one with "
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
        return f.to_json(whole, dict(_JSON)).cast("binary")


def _as_bytes(rows: DataFrame, name: str) -> Column:
    kind = rows.schema[name].dataType.simpleString()
    if kind == "binary":
        return rows[_quoted(name)]
    if kind.startswith(("array", "map", "struct")):
        raise FilesRefused(
            f"The column {name!r} has type {kind}, which cannot be converted to bytes; choose another one."
        )
    return rows[_quoted(name)].cast("string").cast("binary")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _format_of(paths: Sequence[str]) -> FileFormat:
    found = {_ENDINGS.get(_ending(path)) for path in paths}
    chosen = found.pop() if len(found) == 1 else None
    if chosen is None:
        raise FilesRefused(
            f"The format of {', '.join(paths)} cannot be determined from the names; set it with --format "
            f"{'|'.join(FileFormat)}."
        )
    return chosen


def _ending(path: str) -> str:
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    while suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""
