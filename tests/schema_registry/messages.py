"""Protobuf messages for tests, from descriptors: protoc is not needed."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

__all__ = ["Address", "City", "Inner", "Order", "Outer", "Place", "Required", "Stamped"]

_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_TYPES: Final = {"string": _FIELD.TYPE_STRING, "int64": _FIELD.TYPE_INT64}
_OPTIONAL: Final = _FIELD.LABEL_OPTIONAL
_POOL: Final = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)


def _message(into: Any, name: str, /, label: Any = _OPTIONAL, **fields: str) -> Any:
    """Add a message type whose fields have these types; one with a dot is the name of a message type."""
    message = into.add(name=name)
    for number, (field, kind) in enumerate(fields.items(), 1):
        if kind in _TYPES:
            message.field.add(name=field, number=number, label=label, type=_TYPES[kind])
        else:
            message.field.add(name=field, number=number, label=label, type=_FIELD.TYPE_MESSAGE, type_name=kind)
    return message


def _file(name: str, *imports: str, syntax: str = "proto3") -> descriptor_pb2.FileDescriptorProto:
    return descriptor_pb2.FileDescriptorProto(name=name, package="test", syntax=syntax, dependency=imports)


def _register() -> None:
    nested = _file("test/nested.proto", "google/protobuf/timestamp.proto")
    outer = _message(nested.message_type, "Outer", name="string")
    _message(outer.nested_type, "Inner", number="int64")
    _message(nested.message_type, "City", name="string")
    _message(nested.message_type, "Stamped", at=".google.protobuf.Timestamp")
    places = _file("test/places.proto")
    _message(places.message_type, "Place", name="string")
    address = _file("test/address.proto", "test/places.proto")
    _message(address.message_type, "Address", street="string", place=".test.Place")
    order = _file("test/order.proto", "test/address.proto")
    _message(order.message_type, "Order", id="int64", address=".test.Address")
    required = _file("test/required.proto", syntax="proto2")
    _message(required.message_type, "Required", label=_FIELD.LABEL_REQUIRED, name="string")
    for file in (nested, places, address, order, required):
        _POOL.AddSerializedFile(file.SerializeToString())


def _class(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"test.{name}"))


_register()
Outer: Final = _class("Outer")
Inner: Final = _class("Outer.Inner")
City: Final = _class("City")
Stamped: Final = _class("Stamped")
Address: Final = _class("Address")
Order: Final = _class("Order")
Place: Final = _class("Place")
Required: Final = _class("Required")
