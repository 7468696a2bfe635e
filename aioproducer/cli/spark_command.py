"""Spark for a verb: what keeps it from running, and what it raises, are told as Trouble."""

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

__all__ = ["in_percent", "require_spark", "session_for"]

#: Where one of these is set, every session of PySpark's is a client of Spark Connect.
_CONNECT_VARIABLES: Final = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")

#: By these PySpark logs each exception of its own that knows a place in a query, when it is made.
_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


def require_spark(purpose: str, options: argparse.Namespace) -> None:
    """Raise Trouble where ``purpose`` (the beginning of a sentence) cannot be: without PySpark or Java, and with Connect."""
    from aioproducer.spark.session.session import SparkMissing, check_spark

    asks = _asks_for_connect(options)
    if asks is not None:
        raise Trouble(
            f"{purpose} needs the JVM of a Spark of its own, and {asks} asks for Spark Connect, which has none to show. Do "
            "without that, and let --master be local[*], spark://host:7077 or any other master."
        )
    try:
        check_spark(purpose)
    except SparkMissing as error:
        raise Trouble(str(error)) from error


def _asks_for_connect(options: argparse.Namespace) -> str | None:
    """What does, without the address: there may be a token in it."""
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
    """A session as the arguments of `add_spark_arguments` say, stopped when the block ends.

    Raises Trouble where Spark cannot be started or its JVM ends meanwhile, for files that are refused, and for what else
    Spark raises in the block: ``cannot`` (the beginning of a sentence), and the cause.
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
            f"--conf that were given: {error} If Java has said more of it, that stands above."
        ) from error
    except FilesRefused as error:
        raise Trouble(str(error)) from error
    except spark_errors() as error:
        raise Trouble(f"{cannot}: {cause_of(error)}") from error


@contextmanager
def _minding_its_end(spark: SparkSession) -> Generator[None, None, None]:
    from aioproducer.spark.session.session import told_of_end

    try:
        yield
    except (
        Exception
    ) as error:  # of a JVM that is gone anything may be raised, by Py4J, by sockets and by what calls them
        end = told_of_end(spark)
        if end is None:
            raise
        raise Trouble(end) from error


@contextmanager
def _without_traces() -> Generator[None, None, None]:
    """What is raised is told in a sentence; Py4J and PySpark log it as well, with stack traces, and threads print theirs."""
    py4j_error: type[Exception] = import_module("py4j.protocol").Py4JError
    get_logger = import_module("pyspark.logger").PySparkLogger.getLogger
    loggers: list[logging.Logger] = [get_logger(name) for name in _LOGGERS]
    before = [logger.disabled for logger in loggers]
    root, print_trace = logging.getLogger(), threading.excepthook

    def is_of_others(record: logging.LogRecord) -> bool:
        return "py4j" not in Path(record.pathname).parts

    def print_trace_of_others(args: threading.ExceptHookArgs) -> None:
        if not issubclass(args.exc_type, (py4j_error, ConnectionError)):
            print_trace(args)

    root.addFilter(is_of_others)
    threading.excepthook = print_trace_of_others
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        threading.excepthook = print_trace
        root.removeFilter(is_of_others)
        for logger, was_disabled in zip(loggers, before, strict=True):
            logger.disabled = was_disabled


def in_percent(advance: Advance) -> Progress:
    """Moves a bar of 100 as Spark's tasks are done."""
    return lambda done, of, note: advance(done * 100 // max(of, 1), note)
