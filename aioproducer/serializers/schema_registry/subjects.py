"""Strategies that name the subject of a schema in the registry, as Confluent's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from aioproducer.errors import ConfigError

if TYPE_CHECKING:
    from aioproducer.serializers import SerializationContext

__all__ = ["SubjectNameStrategy", "record_name", "topic_name", "topic_record_name"]

#: Returns the subject for a record's destination and the name of its schema (None if the schema has no name).
SubjectNameStrategy: TypeAlias = "Callable[[SerializationContext, str | None], str]"


def topic_name(ctx: SerializationContext, name: str | None) -> str:
    """The topic and "key" or "value" (TopicNameStrategy): all records of a topic have versions of one schema."""
    return f"{ctx.topic}-{ctx.field.value}"


def record_name(ctx: SerializationContext, name: str | None) -> str:
    """The schema's name (RecordNameStrategy): a topic may hold several types, and topics share their versions.

    Raises `ConfigError` for a schema without a name.
    """
    return _required(name)


def topic_record_name(ctx: SerializationContext, name: str | None) -> str:
    """The topic and the schema's name (TopicRecordNameStrategy): a topic may hold several types.

    Raises `ConfigError` for a schema without a name.
    """
    return f"{ctx.topic}-{_required(name)}"


def _required(name: str | None) -> str:
    if name is None:
        raise ConfigError(
            "The schema has no name, which this subject_name_strategy needs: add one (Avro: a record's name, JSON Schema: "
            "title), or use topic_name."
        )
    return name
