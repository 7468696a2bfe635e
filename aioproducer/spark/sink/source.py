"""The data source ``aioproducer``, as PySpark sees it; the work is done in classes that do not depend on Spark.

Spark imports it in many processes, even if nothing is written there, and in the first query of each session even if it is
not used. So everything else is imported only when there is something to write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from aioproducer.errors import ConfigError
    from aioproducer.spark.options.sink import SinkOptions
    from aioproducer.spark.sink.columns import SinkColumns

__all__ = ["AioProducerSource"]


class AioProducerSource(DataSource):
    """Writes DataFrames and streams to Kafka.

    Register it with ``spark.dataSource.register(AioProducerSource)``, then use
    ``df.write.format("aioproducer").mode("append")`` or ``df.writeStream.format("aioproducer")``.

    Columns and options are those of Spark's own Kafka sink; see README.md beside this file for the rest.
    """

    #: The writer class, if it is not one of `aioproducer.spark.sink.writers`.
    batch_writer: ClassVar[Any] = None
    stream_writer: ClassVar[Any] = None

    @classmethod
    def name(cls) -> str:
        """The name for ``format()``."""
        return "aioproducer"

    def schema(self) -> StructType:
        """Called when the source is read; raises `ConfigError`."""
        raise _is_a_sink()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises `ConfigError`."""
        raise _is_a_sink()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Raises `ConfigError`."""
        raise _is_a_sink()

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The writer of a batch job; raises `ConfigError` for invalid options and columns."""
        from aioproducer.spark.sink.writers import BatchWriter

        writer: DataSourceWriter = (self.batch_writer or BatchWriter)(*_checked(self.options, schema, overwrite))
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """The writer of one micro-batch; Spark creates another one to commit."""
        from aioproducer.spark.sink.writers import StreamWriter

        checked, columns = _checked(self.options, schema, overwrite)
        checked.check_stream()
        writer: DataSourceStreamWriter = (self.stream_writer or StreamWriter)(checked, columns)
        return writer


def _is_a_sink() -> ConfigError:
    from aioproducer.errors import ConfigError

    return ConfigError(
        "The data source 'aioproducer' can only write to Kafka. Use Spark's own format('kafka') to read."
    )


def _checked(options: Any, schema: StructType, overwrite: bool) -> tuple[SinkOptions, SinkColumns]:
    from aioproducer.errors import ConfigError
    from aioproducer.spark.options.sink import SinkOptions
    from aioproducer.spark.sink.columns import SinkColumns
    from aioproducer.spark.sink.topic_split import load_pyarrow

    load_pyarrow()
    if overwrite:
        raise ConfigError(
            "Kafka topics cannot be overwritten: use .mode('append'), and for streams not the output mode 'complete'."
        )
    checked = SinkOptions.from_spark(dict(options))
    _ = checked.rows_per_second  # report an invalid limit now
    return checked, SinkColumns.of_frame(schema, checked)
