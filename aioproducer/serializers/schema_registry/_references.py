"""Fetches the schemas that a schema refers to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aioproducer.serializers.schema_registry._api import RegisteredSchema, SchemaReference

if TYPE_CHECKING:
    from aioproducer.serializers.schema_registry.client import SchemaRegistryClient

__all__ = ["referenced"]


async def referenced(
    client: SchemaRegistryClient, references: Sequence[SchemaReference]
) -> list[tuple[SchemaReference, RegisteredSchema]]:
    """The schemas behind the references and behind those of these, each once, dependencies first.

    Raises `SchemaRegistryError` if one does not exist. Cancellation: the request is abandoned.
    """
    found: list[tuple[SchemaReference, RegisteredSchema]] = []
    seen: set[SchemaReference] = set()

    async def visit(reference: SchemaReference) -> None:
        if reference in seen:
            return
        seen.add(reference)
        schema = await client.by_version(reference.subject, reference.version)
        for each in schema.references:
            await visit(each)
        found.append((reference, schema))

    for reference in references:
        await visit(reference)
    return found
