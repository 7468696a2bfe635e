"""The guide's recipes for users' tests: each is run by pytest, in another process and an empty directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from tests.docs.guide import recipes

pytest_plugins = ["pytester"]


class Run(NamedTuple):
    """The plugins that a recipe needs, with their options, and the number of its tests."""

    options: tuple[str, ...]
    passed: int


def _asyncio(mode: str) -> tuple[str, ...]:
    return "-p", "pytest_asyncio.plugin", "-o", f"asyncio_mode={mode}"


RUNS: Mapping[str, Run] = {
    "FastAPI": Run(_asyncio("strict"), 3),
    "pytest-asyncio, strict mode": Run(_asyncio("strict"), 2),
    "pytest-asyncio, auto mode": Run(_asyncio("auto"), 2),
    "anyio": Run(("-p", "anyio.pytest_plugin"), 2),
    "unittest": Run((), 2),
    "Time-outs": Run(_asyncio("strict"), 2),
}


def test_every_recipe_is_run_here() -> None:
    assert set(recipes("testing", "Recipes")) == set(RUNS)


@pytest.fixture(autouse=True)
def _no_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the plugins that a recipe names: it needs no others."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def run(pytester: pytest.Pytester, code: str, *options: str) -> pytest.RunResult:
    """Run these tests; what they leave open fails one of them."""
    pytester.makepyfile(test_shop=code)
    strictly = ["-W", "error::ResourceWarning", "-W", "error::pytest.PytestUnraisableExceptionWarning"]
    plugin = ["-p", "aioproducer.testing.plugin", "-p", "no:cacheprovider"]
    return pytester.runpytest_subprocess("-q", "--strict-markers", *strictly, *plugin, *options, timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_the_recipe_passes(pytester: pytest.Pytester, name: str) -> None:
    run(pytester, recipes("testing", "Recipes")[name], *RUNS[name].options).assert_outcomes(passed=RUNS[name].passed)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_the_recipe_fails_if_the_code_under_test_sends_something_else(pytester: pytest.Pytester, name: str) -> None:
    code = recipes("testing", "Recipes")[name]
    broken = code.replace('send("orders", ', 'send("order", ').replace('enqueue("orders", ', 'enqueue("order", ')
    assert broken != code

    outcomes = run(pytester, broken, *RUNS[name].options).parseoutcomes()

    assert outcomes.get("failed", 0) >= 1
    assert outcomes.get("passed", 0) + outcomes["failed"] == RUNS[name].passed


@pytest.mark.slow
def test_unittest_runs_its_recipe_without_pytest(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile(test_shop=recipes("testing", "Recipes")["unittest"] + "\n\nunittest.main()\n")

    result = pytester.runpython(path)

    result.stderr.fnmatch_lines(["Ran 2 tests in *", "OK"])
    assert result.ret == 0
