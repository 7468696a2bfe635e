"""Spark finds the data source by itself, and nothing that is missing hides the sources of others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import aioproducer

HOME = Path(aioproducer.__file__).parent.parent

#: Makes PySpark say that it is this version.
_VERSION = "import pyspark; pyspark.__version__ = {version!r}\n"
LATER = _VERSION.format(version="4.1.0")

#: Makes the modules look as if they were not installed.
_HIDE = "import sys; sys.path.insert(0, {home!r}); sys.modules.update(dict.fromkeys({hidden!r}))\n"


def run(code: str, *hidden: str) -> str:
    program = _HIDE.format(home=str(HOME), hidden=hidden) + code
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_spark_finds_the_source_where_it_looks() -> None:
    """It lists top-level modules named so, and takes their DefaultSource."""
    code = (
        "import pkgutil, importlib\n"
        "[name] = [each.name for each in pkgutil.iter_modules() if each.name == 'pyspark_aioproducer']\n"
        "print(importlib.import_module(name).DefaultSource.name())"
    )

    assert run(LATER + code) == "aioproducer"


@pytest.mark.parametrize(("version", "is_found"), [("4.0.5", "False"), ("4.1.0.dev0", "True"), ("4.10.0", "True")])
def test_it_is_not_found_where_register_would_be_refused_then(version: str, is_found: str) -> None:
    code = "import pyspark_aioproducer as p; print(hasattr(p, 'DefaultSource'))"

    assert run(_VERSION.format(version=version) + code) == is_found


def test_the_package_that_spark_imports_never_raises() -> None:
    code = "import pyspark_aioproducer as p; print(hasattr(p, 'DefaultSource'))"

    assert run(code, "pyspark") == "False"
    assert run(LATER + code, "pyarrow") == "True"


def test_the_error_of_the_writer_without_pyarrow_names_the_package() -> None:
    code = (
        "from aioproducer.spark import AioProducerSource\n"
        "try: AioProducerSource({}).writer(None, False)\n"
        "except Exception as error: print(error)"
    )

    assert "pip install 'aioproducer[spark]'" in run(code, "pyarrow")


def test_the_error_of_the_import_without_pyspark_names_the_package() -> None:
    code = "try: from aioproducer.spark import AioProducerSource\nexcept ImportError as error: print(error)"

    assert "pip install 'aioproducer[spark-local]'" in run(code, "pyspark")


def test_importing_the_package_brings_neither_spark_nor_arrow() -> None:
    code = "import aioproducer.spark; print(sorted({'pyspark', 'pyarrow'} & set(sys.modules)))"

    assert run(code) == "[]"


def test_finding_the_source_costs_sessions_that_write_nothing_next_to_nothing() -> None:
    code = (
        "import pyspark.sql.datasource; before = set(sys.modules)\n"
        "import pyspark_aioproducer as p; p.DefaultSource({})\n"
        "print(len(set(sys.modules) - before), {'asyncio', 'aioproducer.producer'} & (set(sys.modules) - before))"
    )

    count, others = run(LATER + code).split(" ", 1)

    assert (int(count) < 10, others) == (True, "set()")
