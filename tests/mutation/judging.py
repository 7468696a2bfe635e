"""Runs the tests against each mutant, in a separate process that is forked when nearly all is prepared.

One process collects the tests, and notes which of them run which line. It is forked for each mutant within a function:
the fork gives that function the mutated code, and runs the tests that reach the changed statement, those first that
have noticed other mutants. A mutant of what is executed by the import - a table, a default value - needs a process that
has not imported the module: there an import hook gives the mutated code. Nothing is ever written into the tree.

A test that fails kills the mutant; so does one that takes much longer than without it, and one that ends the process.
"""

from __future__ import annotations

import os
import pickle
import resource
import select
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Final, NoReturn

import pytest

from tests.mutation.mutants import Mutant

__all__ = ["Judgement", "TestsFail", "judge"]

#: A test may take so much longer than without the mutant, before it counts as one that never ends.
_PATIENCE_S: Final = 3.0
_PATIENCE_FACTOR: Final = 10.0
#: A mutant may eat so much memory more than what it was forked from.
_MEMORY: Final = 2 << 30
_COLLECTION_S: Final = 120.0

_PYTEST: Final = ("-q", "-p", "no:cacheprovider", "--capture=no", "--assert=plain", "-o", "timeout=0")


class TestsFail(Exception):
    """The tests fail without any mutant, or cannot be collected."""

    __test__ = False


@dataclass(frozen=True)
class Judgement:
    """The outcome of a mutant. ``killed_by`` is a test, or another reason; None for a survivor."""

    mutant: Mutant
    killed_by: str | None
    tests: int
    """How many tests reach it."""


@dataclass
class _Baseline:
    """The tests without a mutant: the seconds of each, and the lines of the judged modules that each runs."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])
    lines: dict[str, set[tuple[str, int]]] = field(default_factory=dict[str, set[tuple[str, int]]])
    imported: set[tuple[str, int]] = field(default_factory=set[tuple[str, int]])
    kills: Counter[str] = field(default_factory=Counter[str])

    def reaching(self, path: Path, lines: range | None) -> list[str]:
        """The tests that run one of the lines (any of the file: None), the most promising first."""
        if lines is None:
            found = [test for test, reached in self.lines.items() if any(file == str(path) for file, _ in reached)]
        else:
            wanted = {(str(path), line) for line in lines}
            found = [test for test, reached in self.lines.items() if not wanted.isdisjoint(reached)]
        return sorted(found, key=lambda test: (-self.kills[test], self.seconds[test]))


# -- the processes ----------------------------------------------------------------------------------------------------


def judge(
    mutants: Sequence[Mutant], tests: Sequence[str], on_judgement: Callable[[Judgement], None]
) -> list[Judgement]:
    """Run the tests of these files against each mutant. Raises TestsFail."""
    _prepare()
    with _Fork(lambda report: _collect_and_judge(mutants, tests, report)) as fork:
        judged: dict[int, Judgement] = {}
        baseline: _Baseline | None = None
        while (message := fork.receive(None)) is not None:
            match message:
                case _Baseline():
                    baseline = message
                case (int(index), killed_by, int(count)):
                    judged[index] = Judgement(mutants[index], killed_by, count)
                    on_judgement(judged[index])
                case str():
                    raise TestsFail(message)
                case _:
                    raise AssertionError(message)
    if baseline is None:
        raise TestsFail(f"The tests in {', '.join(tests)} could not be collected.")
    for index, mutant in enumerate(mutants):
        if index not in judged:
            judged[index] = _judge_from_import(mutant, baseline)
            on_judgement(judged[index])
    return [judged[index] for index in range(len(mutants))]


def _prepare() -> None:
    """Import the heavy modules that are not mutated, and let Hypothesis neither shrink, nor remember, nor throw dice.

    The profile in tests/conftest.py, which is loaded later, builds upon this one.
    """
    import hypothesis

    hypothesis.settings.register_profile(
        "mutation",
        derandomize=True,
        database=None,
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
    )
    hypothesis.settings.load_profile("mutation")
    for name in ("anyio", "cramjam", "cryptography.x509", "lz4.frame", "pyarrow", "trustme", "uvloop", "zstandard"):
        with suppress(ImportError):
            __import__(name)


def _collect_and_judge(mutants: Sequence[Mutant], tests: Sequence[str], report: Callable[[object], None]) -> None:
    os.dup2(2, 1)  # pytest's own output is no part of the command's output
    tracer = _Tracer({str(mutant.path) for mutant in mutants})
    with tracer:
        plugin = _Warm(mutants, tracer, report)
        code = pytest.main([*_PYTEST, *tests], plugins=[plugin])
    if not plugin.has_run:
        report(f"pytest ended with {code!r} before any test was run.")


def _judge_from_import(mutant: Mutant, baseline: _Baseline) -> Judgement:
    # Of a table no line is run but by the import, and any test may look at it.
    chosen = list(dict.fromkeys([*baseline.reaching(mutant.path, None), *baseline.seconds]))

    def run(report: Callable[[object], None]) -> None:
        sys.meta_path.insert(0, _Hook(mutant))
        _quiet()
        files = dict.fromkeys(test.split("::")[0] for test in chosen)
        code = pytest.main([*_PYTEST, *files], plugins=[_Cold(chosen, report)])
        if code != pytest.ExitCode.OK:
            report((None, True))

    return _watched(mutant, run, chosen, baseline)


def _watched(
    mutant: Mutant, run: Callable[[Callable[[object], None]], None], chosen: Sequence[str], baseline: _Baseline
) -> Judgement:
    """Follow a fork that reports (test, has failed) before and after each test."""
    current: str | None = None
    with _Fork(run) as fork:
        while True:
            usual = _COLLECTION_S if current is None else baseline.seconds[current]
            try:
                message = fork.receive(_PATIENCE_S + _PATIENCE_FACTOR * usual)
            except TimeoutError:
                return Judgement(mutant, f"time ran out in {current}", len(chosen))
            match message:
                case None:  # it has ended: all tests passed, or the whole process broke down
                    fault = fork.fault()
                    return Judgement(mutant, fault and f"{fault} in {current}", len(chosen))
                case (str(test), False):
                    current = test
                case (str(test), True):
                    baseline.kills[test] += 1
                    return Judgement(mutant, test, len(chosen))
                case _:
                    return Judgement(mutant, "the import", len(chosen))


class _Fork:
    """A forked process, which sends objects while it works, and is gone with all its children in the end."""

    def __init__(self, work: Callable[[Callable[[object], None]], None]) -> None:
        self._read, write = os.pipe()
        self._buffer = b""
        sys.stdout.flush()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._read)
            _work_and_exit(work, write)
        os.close(write)
        self._status: int | None = None

    def __enter__(self) -> _Fork:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        self.fault()
        os.close(self._read)

    def receive(self, timeout: float | None) -> Any:
        """The next object; None when the process has ended. Raises TimeoutError."""
        until = None if timeout is None else time.monotonic() + timeout
        while len(self._buffer) < 8 or len(self._buffer) < 8 + int.from_bytes(self._buffer[:8]):
            left = None if until is None else max(0.0, until - time.monotonic())
            if not select.select([self._read], [], [], left)[0]:
                raise TimeoutError
            more = os.read(self._read, 1 << 16)
            if not more:
                return None
            self._buffer += more
        end = 8 + int.from_bytes(self._buffer[:8])
        message, self._buffer = self._buffer[8:end], self._buffer[end:]
        return pickle.loads(message)

    def fault(self) -> str | None:
        """Wait for the end: what was wrong with it."""
        if self._status is None:
            _, self._status = os.waitpid(self._pid, 0)
        code = os.waitstatus_to_exitcode(self._status)
        return None if code == 0 else f"exit code {code}"


def _work_and_exit(work: Callable[[Callable[[object], None]], None], write: int) -> NoReturn:
    code = 1
    try:
        os.setpgid(0, 0)

        def report(message: object) -> None:
            data = pickle.dumps(message)
            data = len(data).to_bytes(8) + data
            while data:
                data = data[os.write(write, data) :]

        work(report)
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)  # the rest of this process belongs to the one that it was forked from


def _quiet() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    os.dup2(null, 2)


# -- within pytest ----------------------------------------------------------------------------------------------------


def _run(session: pytest.Session, items: Sequence[pytest.Item], report: Callable[[object], None]) -> None:
    """Run tests until one fails."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        report((item.nodeid, False))
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            report((item.nodeid, True))
            return


class _Warm:
    """Takes the place of pytest's loop over the tests: it has a fork run some of them for each mutant."""

    def __init__(self, mutants: Sequence[Mutant], tracer: _Tracer, report: Callable[[object], None]) -> None:
        self._mutants = mutants
        self._tracer = tracer
        self._report = report
        self.has_run = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed or session.config.option.collectonly:
            return None
        self.has_run = True
        baseline = self._baseline(session)
        if baseline is None:
            return True
        items = {item.nodeid: item for item in session.items}
        for index, mutant in enumerate(self._mutants):
            wanted = {(str(mutant.path), line) for line in mutant.lines}
            if not mutant.is_in_function or not wanted.isdisjoint(baseline.imported):
                continue
            chosen = baseline.reaching(mutant.path, mutant.lines)
            judgement = self._judge(session, mutant, [items[test] for test in chosen], baseline)
            if judgement is not None:
                self._report((index, judgement.killed_by, judgement.tests))
        self._report(baseline)
        return True

    def _baseline(self, session: pytest.Session) -> _Baseline | None:
        """Measure the time and the reached lines of each test, in a fork, which leaves this process unchanged."""
        imported = self._tracer.taken()
        self._tracer.stop()

        def work(report: Callable[[object], None]) -> None:
            _quiet()
            with self._tracer:
                for item, following in zip(session.items, [*session.items[1:], None], strict=True):
                    self._tracer.taken()
                    begun = time.perf_counter()
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                    seconds = time.perf_counter() - begun
                    report((item.nodeid, seconds, self._tracer.taken(), session.testsfailed))

        baseline = _Baseline(imported=imported)
        with _Fork(work) as fork:
            while (message := fork.receive(None)) is not None:
                test, seconds, lines, failed = message
                if failed:
                    self._report(f"{test} fails without any mutant.")
                    return None
                baseline.seconds[test], baseline.lines[test] = seconds, lines
            fault = fork.fault()
        if fault is not None:
            self._report(f"The tests end with {fault} without any mutant.")
            return None
        return baseline

    def _judge(
        self, session: pytest.Session, mutant: Mutant, items: Sequence[pytest.Item], baseline: _Baseline
    ) -> Judgement | None:
        """None: it cannot be put into the living function."""
        living = _function(mutant)
        code = _code_like(mutant.compiled(), living.__code__) if living is not None else None
        if living is None or code is None or code.co_freevars != living.__code__.co_freevars:
            return None
        if not items:
            return Judgement(mutant, None, 0)

        def work(report: Callable[[object], None]) -> None:
            _quiet()
            _bound_memory()
            living.__code__ = code
            _run(session, items, report)

        return _watched(mutant, work, [item.nodeid for item in items], baseline)


class _Cold:
    """Has pytest run some of the tests that it collects, in this order, in a process where the module is a mutant."""

    def __init__(self, chosen: Sequence[str], report: Callable[[object], None]) -> None:
        self._chosen = chosen
        self._report = report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed:
            return None
        _bound_memory()
        items = {item.nodeid: item for item in session.items}
        _run(session, [items[test] for test in self._chosen if test in items], self._report)
        return True


def _bound_memory() -> None:
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, resource.RLIM_INFINITY))


# -- the mutated code -------------------------------------------------------------------------------------------------


def _function(mutant: Mutant) -> FunctionType | None:
    """The function that a mutant changes, as it lives in this process."""
    path = str(mutant.path)
    module = next((each for each in list(sys.modules.values()) if getattr(each, "__file__", None) == path), None)
    if module is None:
        return None
    for function in _functions(vars(module).values(), module):
        code = function.__code__
        if code.co_qualname == mutant.key.function and _spans(code, mutant.lines):
            return function
    return None


def _functions(values: Any, module: ModuleType) -> Iterator[FunctionType]:
    for value in list(values):
        if isinstance(value, type) and value.__module__ == module.__name__:
            yield from _functions(vars(value).values(), module)
        for each in (value, *(getattr(value, name, None) for name in ("fget", "fset", "__func__", "func"))):
            while each is not None:
                if isinstance(each, FunctionType) and each.__module__ == module.__name__:
                    yield each
                each = getattr(each, "__wrapped__", None) if isinstance(each, FunctionType) else None


def _spans(code: CodeType, lines: range) -> bool:
    last = max((line for *_, line in _all_lines(code) if line is not None), default=0)
    return code.co_firstlineno <= lines.start <= last


def _all_lines(code: CodeType) -> Iterator[tuple[int, int, int | None]]:
    yield from code.co_lines()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all_lines(constant)


def _code_like(code: CodeType, original: CodeType) -> CodeType | None:
    """The code of the same function within mutated code."""
    if (code.co_qualname, code.co_firstlineno) == (original.co_qualname, original.co_firstlineno):
        return code
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return next((found for each in inner if (found := _code_like(each, original)) is not None), None)


class _Hook(MetaPathFinder):
    """Imports one module as its mutant."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin != str(self._mutant.path):
            return None
        spec.loader = _MutantLoader(fullname, str(self._mutant.path), self._mutant)
        return spec


class _MutantLoader(SourceFileLoader):
    def __init__(self, name: str, path: str, mutant: Mutant) -> None:
        super().__init__(name, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        return self._mutant.compiled()


class _Tracer:
    """Notes which lines of some files are run, in all threads."""

    def __init__(self, files: set[str]) -> None:
        self._files = files
        self._lines: set[tuple[str, int]] = set()

    def __enter__(self) -> _Tracer:
        threading.settrace(self._on_call)
        sys.settrace(self._on_call)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Note no more."""
        sys.settrace(None)
        threading.settrace(None)

    def taken(self) -> set[tuple[str, int]]:
        """The lines since the last call."""
        lines, self._lines = self._lines, set()
        return lines

    def _on_call(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._on_line if frame.f_code.co_filename in self._files else None

    def _on_line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            self._lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._on_line
