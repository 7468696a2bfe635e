"""The options that the serializers of all formats have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from aioproducer.serializers.schema_registry._api import SchemaReference
from aioproducer.serializers.schema_registry.subjects import SubjectNameStrategy

__all__ = ["Options"]


class Options(TypedDict, total=False):
    """The options of all serializers.

    ``subject_name_strategy`` (default: `topic_name`) returns the subject; ``auto_register_schemas`` (True) registers the
    schema before the first record, otherwise it must be registered; ``use_latest_version`` (False) writes with the subject's
    latest schema instead, and needs ``auto_register_schemas=False``; ``normalize_schemas`` (False) lets the registry
    ignore differences of form; ``references`` are the registered schemas that the schema uses.
    """

    subject_name_strategy: SubjectNameStrategy
    auto_register_schemas: bool
    use_latest_version: bool
    normalize_schemas: bool
    references: Sequence[SchemaReference]
