"""Encodes and decodes Kafka's messages; no I/O."""

from __future__ import annotations

from aioproducer.protocol.api_key import ApiKey
from aioproducer.protocol.error_codes import ErrorCode, broker_error
from aioproducer.protocol.frames import (
    FrameReader,
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
)
from aioproducer.protocol.message import Message, Request, Response, Struct

__all__ = [
    "ApiKey",
    "ErrorCode",
    "FrameReader",
    "Message",
    "Request",
    "RequestHeader",
    "Response",
    "Struct",
    "broker_error",
    "decode_request_header",
    "decode_response_header",
    "encode_request",
    "encode_response",
]
