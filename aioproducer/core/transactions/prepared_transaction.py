"""The state of a prepared transaction, which an outer coordinator stores to have it committed later (KIP-939)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from aioproducer.errors import ConfigError

__all__ = ["PreparedTransactionState"]

_TEXT = re.compile(r"([0-9]{1,19}):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class PreparedTransactionState:
    """Identifies one prepared transaction: a value that can be pickled, and converted to text (Java's PreparedTxnState).

    ``str(state)`` is ``"producer_id:epoch"``, and `parse` reads it again.
    """

    producer_id: int
    epoch: int

    @classmethod
    def parse(cls, text: str) -> PreparedTransactionState:
        """The state in this text. Raises `ConfigError` for any other text."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise ConfigError(f'Invalid prepared transaction {text!r}: must be "producer_id:epoch".')
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.epoch}"
