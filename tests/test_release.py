"""Releases: the workflows, the wheels that are built, and the documents for contributors fit the repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest
import yaml  # type: ignore[import-untyped]  # its types are another package

from aioproducer._twin import implementation
from tests.wheel_check import check_native_modules, check_origin, check_records

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
DOCUMENTS = sorted(GITHUB.glob("*.md"))

Mapping: TypeAlias = dict[str, Any]


def loaded(path: Path) -> Mapping:
    found: object = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict), path
    return cast("Mapping", found)


def project() -> Mapping:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


# -- workflows --------------------------------------------------------------------------------------------------------


def test_the_workflows_are_those_of_ci_and_of_wheels() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "wheels.yml"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_each_job_has_a_time_limit_and_pinned_actions(path: Path) -> None:
    for name, job in loaded(path)["jobs"].items():
        assert 0 < job["timeout-minutes"] <= 120, name
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), step
            assert is_pinned(step.get("uses", "own/step@v1")), step


def is_pinned(action: str) -> bool:
    """Whether the action has a major version, a release branch or a commit hash."""
    return re.fullmatch(r"[\w-]+/[\w./-]+@(v\d+|release/v\d+|[0-9a-f]{40})", action) is not None


@pytest.mark.parametrize("action", ["actions/checkout", "actions/checkout@main", "actions/checkout@v", "checkout@v4"])
def test_an_action_without_a_version_is_detected(action: str) -> None:
    assert not is_pinned(action)


def writes(workflow: Mapping) -> Iterator[tuple[str, str]]:
    """The jobs with a permission to write, and the permission; a workflow must set what its jobs have by default."""
    everywhere: object = workflow.get("permissions")
    given: list[tuple[str, object]] = [("every job", "nothing is set" if everywhere is None else everywhere)]
    given += [(name, job.get("permissions", {})) for name, job in workflow["jobs"].items()]
    for job, permissions in given:
        if isinstance(permissions, dict):
            rights = cast("dict[str, str]", permissions)
            yield from ((job, name) for name, access in rights.items() if access != "read")
        else:
            yield job, str(permissions)


def test_only_publishing_may_write() -> None:
    found = {path.name: list(writes(loaded(path))) for path in WORKFLOWS}

    assert found == {"ci.yml": [], "wheels.yml": [("publish", "id-token"), ("github-release", "contents")]}


@pytest.mark.parametrize(
    ("workflow", "found"),
    [
        ("jobs: {a: {}}", ("every job", "nothing is set")),
        ("permissions: write-all\njobs: {a: {}}", ("every job", "write-all")),
        ("permissions: {packages: write}\njobs: {a: {}}", ("every job", "packages")),
        ("permissions: {contents: read}\njobs: {a: {permissions: {contents: write}}}", ("a", "contents")),
        ("permissions: {}\njobs: {a: {permissions: write-all}}", ("a", "write-all")),
    ],
)
def test_a_permission_to_write_is_detected(workflow: str, found: tuple[str, str]) -> None:
    assert list(writes(yaml.safe_load(workflow))) == [found]


def test_publishing_asks_for_an_identity_alone_and_runs_no_code_of_the_project() -> None:
    jobs = loaded(GITHUB / "workflows" / "wheels.yml")["jobs"]
    publish = jobs["publish"]

    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"] == "pypi"
    assert publish["needs"] == ["release-files"]
    (action,) = (step for step in publish["steps"] if "pypi-publish" in step["uses"])
    assert action["with"] == {"attestations": True}
    for name in ("publish", "github-release"):
        assert jobs[name]["if"] == "startsWith(github.ref, 'refs/tags/v')"
        assert not [step for step in jobs[name]["steps"] if "checkout" in step.get("uses", "")], name


def test_ci_runs_the_whole_suite() -> None:
    (job,) = loaded(GITHUB / "workflows" / "ci.yml")["jobs"].values()

    assert job["timeout-minutes"] == 90
    assert job["steps"][-1] == {"run": ".ci/run"}
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


# -- wheels -----------------------------------------------------------------------------------------------------------


def of_classifiers(classifiers: list[str]) -> set[str]:
    """The tags of the Pythons that are promised, such as cp311."""
    found = (re.fullmatch(r"Programming Language :: Python :: 3\.(\d+)", each) for each in classifiers)
    return {f"cp3{match[1]}" for match in found if match}


def test_a_wheel_is_built_for_each_python_that_is_promised() -> None:
    described = project()

    promised = of_classifiers(described["project"]["classifiers"])
    assert "cp311" in promised
    assert {each.removesuffix("-*") for each in described["tool"]["cibuildwheel"]["build"]} == promised


def test_only_minor_versions_are_promised_pythons() -> None:
    assert of_classifiers(["Programming Language :: Python :: 3", "Programming Language :: Python :: 3.9"]) == {"cp39"}


def test_wheels_are_built_for_each_system_and_processor() -> None:
    settings = project()["tool"]["cibuildwheel"]
    jobs = loaded(GITHUB / "workflows" / "wheels.yml")["jobs"]

    wanted = {arch for system in ("linux", "macos", "windows") for arch in settings[system]["archs"]}
    assert wanted == {"x86_64", "aarch64", "arm64", "AMD64"}
    built = {arch for each in jobs["wheels"]["strategy"]["matrix"]["include"] for arch in each["archs"].split()}
    assert built == wanted


def test_each_wheel_is_checked_by_a_script_that_exists() -> None:
    command = project()["tool"]["cibuildwheel"]["test-command"]

    assert command.startswith("python -P {project}/")
    assert (ROOT / command.partition("{project}/")[2]).is_file()


def test_the_check_of_a_wheel_refuses_the_checkout_and_missing_native_modules() -> None:
    code = "from tests.wheel_check import check_native_modules as check; check()"
    pure = {**os.environ, "AIOPRODUCER_PURE": "1"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=pure, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert done.stderr.endswith("AssertionError: pure Python: AIOPRODUCER_PURE=1\n")
    with pytest.raises(AssertionError, match="imported from the checkout"):
        check_origin()


@pytest.mark.skipif(implementation() != "native", reason="the native modules are not in use")
def test_the_check_of_a_wheel_knows_all_native_modules() -> None:
    check_native_modules()


def test_the_check_of_a_wheel_sends_records() -> None:
    check_records()


# -- documents and forms ----------------------------------------------------------------------------------------------

#: Paths in code spans that a release creates, or that stand for others.
_NOT_HERE = {"SHA256SUMS", "aioproducer.cdx.json"}
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")
_CODE = re.compile(r"`([\w./-]+)`")


def missing_references(text: str, of: Path) -> list[str]:
    """The files and folders that the text links to or names in code spans, and that do not exist."""
    links = [target for target in _LINK.findall(text) if not (of.parent / target).exists()]
    named = [
        name
        for name in _CODE.findall(text)
        if ("/" in name or name.endswith((".md", ".py", ".yml", ".toml")))
        and name not in _NOT_HERE
        and not any((base / name).exists() for base in (ROOT, GITHUB, GITHUB / "workflows", ROOT / "aioproducer"))
    ]
    return links + named


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents_refer_to_files_that_exist(path: Path) -> None:
    assert missing_references(path.read_text(encoding="utf-8"), path) == []


def test_the_documents_are_those_for_contributors() -> None:
    names = ["CONTRIBUTING.md", "PULL_REQUEST_TEMPLATE.md", "RELEASING.md", "SECURITY.md"]
    assert [path.name for path in DOCUMENTS] == names


def test_a_missing_reference_is_detected() -> None:
    text = "[a](../nowhere.md) [b](../README.md) `tests/nowhere/` `tests/ci/` `nothing.py` `AIOPRODUCER_PURE`"

    assert missing_references(text, GITHUB / "CONTRIBUTING.md") == ["../nowhere.md", "tests/nowhere/", "nothing.py"]


def test_contributing_has_the_parts_of_the_architecture_that_it_refers_to() -> None:
    architecture = (ROOT / "aioproducer" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    text = (GITHUB / "CONTRIBUTING.md").read_text(encoding="utf-8")

    for heading in ("Which tests to run, and when", "The style of docstrings, comments and messages"):
        assert f'"{heading}"' in text
        assert f"\n## {heading}\n" in architecture


@pytest.mark.parametrize("name", ["bug.yml", "feature.yml"])
def test_forms_of_issues_have_what_github_requires(name: str) -> None:
    form = loaded(GITHUB / "ISSUE_TEMPLATE" / name)

    assert form["name"]
    assert form["description"]
    assert faults_of_form(form["body"]) == []


_KINDS = {"checkboxes", "dropdown", "input", "markdown", "textarea"}


def faults_of_form(body: list[Mapping]) -> list[str]:
    """The fields that GitHub would refuse: kinds, labels, and identifiers that must differ."""
    faults: list[str] = []
    fields = [each for each in body if each.get("type") != "markdown"]
    faults += [f"kind {each.get('type')}" for each in body if each.get("type") not in _KINDS]
    faults += [f"no label: {each}" for each in fields if not each.get("attributes", {}).get("label")]
    if len({each.get("id") for each in fields}) != len(fields):
        faults.append("identifiers are missing or repeated")
    if not fields:
        faults.append("no field")
    for each in fields:
        options: list[object] = each["attributes"].get("options", []) if each["type"] == "dropdown" else []
        faults += [f"option {option!r} is not text" for option in options if not isinstance(option, str)]
    return faults


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("[{type: text, id: a, attributes: {label: A}}]", "kind text"),
        ("[{type: input, id: a, attributes: {label: ''}}]", "no label"),
        ("[{type: input, id: a, attributes: {label: A}}, {type: input, id: a, attributes: {label: B}}]", "identifiers"),
        ("[{type: markdown, attributes: {value: A}}]", "no field"),
        ("[{type: dropdown, id: a, attributes: {label: A, options: [No]}}]", "option False"),
    ],
)
def test_a_faulty_form_is_detected(body: str, fault: str) -> None:
    (found,) = faults_of_form(yaml.safe_load(body))
    assert found.startswith(fault)


def test_vulnerabilities_get_no_issue() -> None:
    assert loaded(GITHUB / "ISSUE_TEMPLATE" / "config.yml")["blank_issues_enabled"] is False
    for path in (GITHUB / "ISSUE_TEMPLATE" / "bug.yml", GITHUB / "CONTRIBUTING.md"):
        text = path.read_text(encoding="utf-8")
        assert "Report a vulnerability" in text
        assert "aioproducer/SECURITY.md" in text
