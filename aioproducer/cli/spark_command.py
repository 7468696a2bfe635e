"""Spark for a verb: what keeps it from running, and what it raises, are told as Trouble."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aioproducer.cli.console import Advance
from aioproducer.cli.verb import Trouble

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aioproducer.spark.load_progress import Progress

__all__ = ["in_percent", "require_spark", "session_for"]


def require_spark(purpose: str) -> None:
    """Raise Trouble where ``purpose`` (the beginning of a sentence) cannot be, for want of PySpark or Java."""
    from aioproducer.spark.load_session import SparkMissing, check_spark

    try:
        check_spark(purpose)
    except SparkMissing as error:
        raise Trouble(str(error)) from error


@contextmanager
def session_for(verb: str, options: argparse.Namespace, cannot: str) -> Generator[SparkSession, None, None]:
    """A session as the arguments of `add_spark_arguments` say, stopped when the block ends.

    Raises Trouble for files that are refused, and for what else Spark raises in the block: ``cannot`` (the beginning of a
    sentence), and the cause.
    """
    from aioproducer.spark.load_errors import cause_of, spark_errors
    from aioproducer.spark.load_files import FilesRefused
    from aioproducer.spark.load_session import spark_session

    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    name, settings = f"aioproducer {verb}", dict(options.settings)
    with spark_session(name, options.master, options.driver_memory, settings) as spark:
        try:
            yield spark
        except FilesRefused as error:
            raise Trouble(str(error)) from error
        except spark_errors() as error:
            raise Trouble(f"{cannot}: {cause_of(error)}") from error


def in_percent(advance: Advance) -> Progress:
    """Moves a bar of 100 as Spark's tasks are done."""
    return lambda done, of, note: advance(done * 100 // max(of, 1), note)
