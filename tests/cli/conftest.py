"""Fixtures of the command line's tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def java_that_only_names_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JAVA_HOME that passes the check for Java, with or without Java on this machine, and cannot start Spark."""
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\" 2021-10-19' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
