"""The modules that ``from aioproducer import Producer`` imports, and those imported later; in a fresh interpreter.

Modules are counted, not milliseconds: a machine that is busy takes no longer for them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from typing import cast

import pytest

from aioproducer.protocol import messages
from aioproducer.testing import FakeBroker

#: For features that most programs never use, or only wrong ones: the first use imports them.
LATER = (
    "aioproducer._config.environment",
    "aioproducer._config.names",
    "aioproducer._config.properties",
    "aioproducer._config.url",
    "aioproducer.serializers.builtin",
    "aioproducer.cli",
    "aioproducer.core.cluster",
    "aioproducer.core.sasl",
    "aioproducer.core.transactions.manager",
    "aioproducer.engine.engine",
    "aioproducer.intake.hand_over",
    "aioproducer.intake.table",
    "aioproducer.net",
    "aioproducer.net.security.login",
    "aioproducer.net.security.tls",
    "aioproducer.oauth",
    "aioproducer.protocol.messages.fetch",
    "aioproducer.protocol.messages.requests",
    "aioproducer.record.columns",
    "aioproducer.spark",
    "aioproducer.sync",
    "aioproducer.testing",
    "aioproducer.transactions.context",
    "aioproducer.transactions.link",
)

#: What other packages and the standard library have for these.
FOREIGN = (
    "argparse",
    "click",
    "confluent_kafka",
    "cramjam",
    "crc32c",
    "datetime",
    "decimal",
    "difflib",
    "email",
    "fastavro",
    "hmac",
    "importlib.metadata",
    "json",
    "lz4",
    "multiprocessing",
    "numpy",
    "orjson",
    "pandas",
    "pathlib",
    "pickle",
    "pyarrow",
    "pyspark",
    "python_socks",
    "rich",
    "secrets",
    "tempfile",
    "tomllib",
    "uvloop",
    "zipfile",
    "zoneinfo",
    "zstandard",
)

#: Ours and others', beside those that asyncio loads. Another one needs a reason.
MOST_MODULES = 47
#: Those that the first producer loads.
MOST_OF_A_PRODUCER = 116


def new_modules(code: str, *arguments: str, pure: bool = False) -> set[str]:
    """The names that the code prints as JSON."""
    environment = {**os.environ, "AIOPRODUCER_PURE": "1"} if pure else None
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True, env=environment
    )
    return set(cast("list[str]", json.loads(done.stdout)))


@pytest.mark.parametrize("pure", [False, True], ids=["native", "pure"])
def test_a_producer_brings_nothing_that_is_for_others(pure: bool) -> None:
    code = "import asyncio, sys\nbefore = {*sys.modules}\nfrom aioproducer import Producer\n"
    code += "new = [*{*sys.modules} - before]\nimport json; print(json.dumps(new))"

    new = new_modules(code, pure=pure)

    assert "aioproducer.producer" in new
    assert sorted(new & {*LATER, *FOREIGN}) == []
    new.discard("_typing")  # native code of Python's own, which 3.14 has beside typing
    assert len(new) <= MOST_MODULES


def test_the_first_producer_loads_what_runs_it() -> None:
    """Two thirds of all modules: a program that imports the class may never create one."""
    code = """
import sys
from aioproducer import Producer
before = {*sys.modules}
Producer("localhost:9092")
new = [*{*sys.modules} - before]
import json; print(json.dumps(new))
"""
    new = new_modules(code)

    assert "aioproducer.engine.engine" in new
    assert sorted(new & {*FOREIGN}) == []
    assert len(new) <= MOST_OF_A_PRODUCER


def test_modules_imported_later_exist() -> None:
    """A module that was renamed would make the other test say nothing."""
    for module in LATER:
        import_module(module)


def test_a_send_imports_nothing(broker: FakeBroker) -> None:
    """An import would hold up the event loop; creating and starting a producer loads what sends need."""
    code = """
import asyncio, sys
from aioproducer import Producer
producer = Producer(sys.argv[1])
async def main():
    async with producer:
        loaded = {*sys.modules}
        await producer.send("orders", b"value")
        await (await producer.enqueue("orders", "value", key="key", headers={"name": b"value"}))
        await producer.send_many("orders", [b"value"])
        await producer.flush()
        return {*sys.modules} - loaded
new = asyncio.run(main())
import json; print(json.dumps([*new]))
"""

    assert new_modules(code, broker.bootstrap_servers) == set()
    assert len(broker.records("orders")) == 3


def test_every_message_is_found_by_its_name() -> None:
    assert {*messages.__all__} <= {*dir(messages)}
    for name in messages.__all__:
        found = getattr(messages, name)
        assert not isinstance(found, type) or found.__name__ == name
    with pytest.raises(AttributeError, match="NoRequest"):
        messages.NoRequest  # noqa: B018 - asking is the test
