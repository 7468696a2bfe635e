"""The facts of an audit as DataFrames: one fixed-width row per record, whatever the size of its value."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from aioproducer.spark.audit.bucket_check import FACT_COLUMNS, SEQUENCE_BLOCK, Side
from aioproducer.spark.audit.reader import COLUMNS, RECORD
from aioproducer.spark.files.files import ORDER, FilesRefused

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "DIGEST_COLUMNS",
    "NUMBER",
    "Where",
    "WhereRefused",
    "content_hash",
    "digests",
    "expected_facts",
    "expected_number",
    "log_facts",
]

#: The column with an expected record's position in the order.
NUMBER: Final = "_aioproducer_number"

#: Columns of `digests`, with Spark's type names: those of the records read, with ``content`` (a hash of key and value, or of
#: the run) and ``number`` (the sequence number, or -1) in place of the value and the headers.
DIGEST_COLUMNS: Final[Mapping[str, str]] = {
    **{name: COLUMNS[name] for name in ("kind", "partition", "offset", "count", "key", "home")},
    "content": "bigint",
    "number": "bigint",
}

#: A row's position in the order as one number: 16 bits of file, 14 of block, 33 of row; Spark's blocks are never smaller.
_BLOCK_SIZE: Final = 4 << 20
_BLOCK_BITS: Final = 14
_ROW_BITS: Final = 33


class WhereRefused(Exception):
    """The text does not name a place in a record."""


@dataclass(frozen=True, slots=True)
class Where:
    """A place in a record: a header, a field of a JSON value, or the whole value."""

    place: str
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> Where:
        """From ``header:NAME``, ``json:NAME`` or ``value``; raises WhereRefused."""
        found = re.fullmatch(r"(header|json):(.+)|(value)", text)
        if found is None:
            raise WhereRefused(f"invalid {text!r}: must be header:NAME, json:FIELD or value.")
        return cls(found[1] or found[3], found[2] or "")

    @property
    def is_header(self) -> bool:
        """Whether headers must be read for it."""
        return self.place == "header"

    def text_of(self, value: bytes | None, headers: Sequence[Mapping[str, Any]]) -> str | None:
        """The text at this place of one record; None if it is missing."""
        if self.place == "header":
            found = next((each["value"] for each in headers if each["key"] == self.name), None)
            return None if found is None else bytes(found).decode(errors="replace")
        if self.place == "json":
            found = _field(value, self.name)
            return None if found is None else found if isinstance(found, str) else json.dumps(found)
        return None if value is None else value.decode(errors="replace")

    def text(self) -> Column:
        """A string column, computed from the columns ``value`` and ``headers``; null if the place is missing."""
        from pyspark.sql import functions as f

        if self.place == "header":
            found = f.filter("headers", lambda header: header["key"] == self.name)
            return f.get(found, 0)["value"].cast("string")
        if self.place == "json":
            return f.get_json_object(f.col("value").cast("string"), f"$['{self.name}']")
        return f.col("value").cast("string")


def _field(value: bytes | None, name: str) -> Any:
    """The field of a JSON object; None if the value is not an object."""
    try:
        fields: Any = json.loads(value or b"null")
    except ValueError:
        return None
    return cast("Mapping[str, Any]", fields).get(name) if isinstance(fields, dict) else None


def content_hash() -> Column:
    """A hash of ``key`` and ``value`` that distinguishes null from empty."""
    from pyspark.sql import functions as f

    return f.xxhash64(f.col("key").isNull(), "key", f.col("value").isNull(), "value")


def digests(records: DataFrame, sequence: Where | None, run: Where | None) -> DataFrame:
    """The `DIGEST_COLUMNS` of the records read (`aioproducer.spark.audit.reader.COLUMNS`): hashes and numbers for values."""
    from pyspark.sql import functions as f

    run_text = f.coalesce(run.text(), f.lit("")) if run is not None else f.lit("")
    number = f.coalesce(sequence.text().try_cast("bigint"), f.lit(-1)) if sequence is not None else f.lit(-1)
    made = {
        "content": content_hash() if sequence is None else f.xxhash64(run_text),
        "number": number.cast("bigint"),
    }
    return records.select(*(made.get(name, f.col(name)).alias(name) for name in DIGEST_COLUMNS))


def log_facts(read: DataFrame, *, by_number: bool) -> DataFrame:
    """The facts of `digests`; ``by_number``: whether the records carry sequence numbers."""
    from pyspark.sql import functions as f

    rows = read.withColumn("keyed", f.col("key").isNotNull())
    of_key = f.xxhash64("key", "content") if by_number else f.xxhash64("key")
    log = f.struct(
        f.lit(int(Side.LOG)).cast("tinyint").alias("side"),
        f.when(f.col("keyed"), of_key).otherwise(f.xxhash64("content", "number")).alias("bucket"),
        "content",
        "partition",
        "offset",
        "number",
        "keyed",
        (f.coalesce(f.col("home") != f.col("partition"), f.lit(False))).alias("misplaced"),
    )
    block = f.floor(f.col("number") / SEQUENCE_BLOCK)
    numbered = log.withField("side", f.lit(int(Side.SEQUENCE)).cast("tinyint")).withField(
        "bucket", f.xxhash64("content", block)
    )
    offset_fact = (
        log.withField("side", _side_of_kind())
        .withField("bucket", f.xxhash64("partition", "offset"))
        .withField("number", f.col("count"))
    )
    is_record = f.col("kind") == RECORD
    if by_number:
        of_record = f.when(f.col("number") >= 0, f.array(log, numbered)).otherwise(f.array(log))
        facts = rows.select(f.explode(f.when(is_record, of_record).otherwise(f.array(offset_fact))).alias("fact"))
    else:
        facts = rows.select(f.when(is_record, log).otherwise(offset_fact).alias("fact"))
    return facts.select(*(f.col(f"fact.{name}").alias(name) for name in FACT_COLUMNS))


def _side_of_kind() -> Column:
    from pyspark.sql import functions as f

    chosen = f.lit(int(Side.UNEXPLAINED))
    for side in (Side.CONTROL, Side.ABORTED, Side.MISSING, Side.WITHHELD):
        chosen = f.when(f.col("kind") == side.name.lower(), f.lit(int(side))).otherwise(chosen)
    return chosen.cast("tinyint")


def expected_facts(records: DataFrame) -> DataFrame:
    """The facts of the expected records: ``key`` and ``value``, and `NUMBER`, the position of each in the order."""
    from pyspark.sql import functions as f

    keyed = f.col("key").isNotNull()
    content = content_hash()
    columns = {
        "side": f.lit(int(Side.EXPECTED)),
        "bucket": f.when(keyed, f.xxhash64("key")).otherwise(f.xxhash64(content, f.lit(-1).cast("bigint"))),
        "content": content,
        "partition": f.lit(-1),
        "offset": f.lit(-1),
        "number": f.col(NUMBER),
        "keyed": keyed,
        "misplaced": f.lit(False),
    }
    return records.select(*(columns[name].cast(kind).alias(name) for name, kind in FACT_COLUMNS.items()))


def expected_number(rows: DataFrame, column: str | None) -> DataFrame:
    """The rows with `NUMBER`: the order of one of their columns, or of the files (columns `ORDER`).

    Raises FilesRefused for a missing column, or one whose order an integer cannot keep.
    """
    from pyspark.sql import functions as f

    if column is not None:
        return rows.withColumn(NUMBER, _whole_number(rows, column))
    block = f.floor(f.col(ORDER.block) / _BLOCK_SIZE)
    row = f.col(ORDER.row).bitwiseAND((1 << _ROW_BITS) - 1)
    number = f.shiftleft(f.shiftleft(_rank(rows), _BLOCK_BITS).bitwiseOR(block.cast("bigint")), _ROW_BITS)
    return rows.withColumn(NUMBER, number.bitwiseOR(row))


#: Types whose order an integer keeps; it would lose part of a fraction or of a time in seconds.
_WHOLE: Final = frozenset({"tinyint", "smallint", "int", "bigint", "string"})


def _whole_number(rows: DataFrame, name: str) -> Column:
    from pyspark.sql import functions as f

    kinds = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    if name not in kinds:
        raise FilesRefused(
            f"There is no column {name!r} to order by; the files have {', '.join(set(kinds) - {*ORDER})}. Choose one with "
            "--order."
        )
    column, kind = f.col(f"`{name.replace('`', '``')}`"), kinds[name]
    if kind.startswith("timestamp"):
        return f.unix_micros(column.cast("timestamp"))
    if kind == "date":
        return f.unix_date(column).cast("bigint")
    if kind not in _WHOLE:
        raise FilesRefused(
            f"The column {name!r} has type {kind}, but rows can only be ordered by integers, dates or timestamps. Choose "
            "another one with --order, or set its type with --schema."
        )
    return column.cast("bigint")


def _rank(rows: DataFrame) -> Column:
    """The position of each row's file among the files."""
    from pyspark.sql import functions as f

    rank = f.lit(0)
    if len(rows.inputFiles()) > 1:
        files = sorted(row[0] for row in rows.select(ORDER.file).distinct().collect())
        ranks = f.create_map(*(f.lit(part) for rank, file in enumerate(files) for part in (file["path"], rank)))
        rank = ranks[f.col(ORDER.file)["path"]]
    return rank.cast("bigint")
