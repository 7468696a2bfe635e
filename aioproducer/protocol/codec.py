"""Selects the code that writes and reads structs: native code if it was built, or functions compiled to Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioproducer._twin import use_native

if TYPE_CHECKING or not use_native("aioproducer.protocol._native"):
    from .compiler import compile_decoder, compile_encoder
else:
    from ._native import compile_decoder, compile_encoder

__all__ = ["compile_decoder", "compile_encoder"]
