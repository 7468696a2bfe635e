"""Spark for a verb: its start-up failures and exceptions become Trouble."""

from __future__ import annotations

import argparse
import logging
import os
import threading
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aioproducer.cli.console import Advance
from aioproducer.cli.verb import Trouble

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aioproducer.spark.session.progress import Progress

__all__ = ["in_percent", "refuse_spark_connect", "require_spark", "session_for"]

#: If one of these is set, every PySpark session is a Spark Connect client.
_CONNECT_VARIABLES: Final = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")

#: The loggers through which PySpark logs each of its exceptions with query context, on creation.
_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


def refuse_spark_connect(purpose: str, options: argparse.Namespace) -> None:
    """Raise Trouble if the arguments or the environment select Spark Connect; ``purpose`` is the subject of its message."""
    asks = _asks_for_connect(options)
    if asks is not None:
        raise Trouble(
            f"{purpose} needs direct access to Spark's JVM, and {asks} selects Spark Connect, which has none. Remove "
            "that, and set --master to local[*], spark://host:7077 or any other master."
        )


def require_spark(purpose: str) -> None:
    """Raise Trouble if PySpark or Java is missing; ``purpose`` is the beginning of its message."""
    from aioproducer.spark.session.session import SparkMissing, check_spark

    try:
        check_spark(purpose)
    except SparkMissing as error:
        raise Trouble(str(error)) from error


def _asks_for_connect(options: argparse.Namespace) -> str | None:
    """The option or variable that selects it, without the address, which may contain a token."""
    settings = dict(options.settings)
    if options.master.startswith("sc://"):
        return "--master sc://..."
    if "spark.remote" in settings:
        return "--conf spark.remote=..."
    if settings.get("spark.api.mode", "").lower() == "connect":
        return "--conf spark.api.mode=connect"
    return next((f"the variable {name}" for name in _CONNECT_VARIABLES if name in os.environ), None)


@contextmanager
def session_for(verb: str, options: argparse.Namespace, cannot: str) -> Generator[SparkSession, None, None]:
    """A session with the arguments of `add_spark_arguments`, stopped when the block ends.

    Raises Trouble if Spark cannot be started or its JVM exits, for files that are refused, and for any other exception
    of Spark in the block: ``cannot`` (the beginning of a sentence), and the cause.
    """
    from aioproducer.spark.files.files import FilesRefused
    from aioproducer.spark.session.errors import cause_of, spark_errors
    from aioproducer.spark.session.session import SparkNotStarted, spark_session

    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    name, settings = f"aioproducer {verb}", dict(options.settings)
    try:
        with (
            _without_traces(),
            spark_session(name, options.master, options.driver_memory, settings) as spark,
            _minding_its_end(spark),
        ):
            yield spark
    except SparkNotStarted as error:
        raise Trouble(
            f"Spark could not be started with --master {options.master}, --driver-memory {options.driver_memory} and the "
            f"given --conf: {error} Java's own output, if any, is above."
        ) from error
    except FilesRefused as error:
        raise Trouble(str(error)) from error
    except spark_errors() as error:
        raise Trouble(f"{cannot}: {cause_of(error)}") from error


@contextmanager
def _minding_its_end(spark: SparkSession) -> Generator[None, None, None]:
    from aioproducer.spark.session.session import end_message

    try:
        yield
    except Exception as error:  # once the JVM is gone, Py4J, sockets and their callers may raise anything
        end = end_message(spark)
        if end is None:
            raise
        raise Trouble(end) from error


@contextmanager
def _without_traces() -> Generator[None, None, None]:
    """Silence the stack traces that Py4J and PySpark log and threads print: errors are reported in one sentence."""
    py4j_error: type[Exception] = import_module("py4j.protocol").Py4JError
    get_logger = import_module("pyspark.logger").PySparkLogger.getLogger
    loggers: list[logging.Logger] = [get_logger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    root, print_trace = logging.getLogger(), threading.excepthook

    def is_not_spark(record: logging.LogRecord) -> bool:
        return "py4j" not in Path(record.pathname).parts

    def print_other_trace(args: threading.ExceptHookArgs) -> None:
        if not issubclass(args.exc_type, (py4j_error, ConnectionError)):
            print_trace(args)

    root.addFilter(is_not_spark)
    threading.excepthook = print_other_trace
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        threading.excepthook = print_trace
        root.removeFilter(is_not_spark)
        for logger, was_disabled in zip(loggers, before, strict=True):
            logger.disabled = was_disabled


def in_percent(advance: Advance) -> Progress:
    """Moves a bar of 100 as Spark's tasks finish."""
    return lambda done, of, note: advance(done * 100 // max(of, 1), note)
