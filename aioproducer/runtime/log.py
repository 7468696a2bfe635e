"""The log of one client: each of its lines carries the client id, in the text and as fields.

Several producers can live in one process, and all write to the same logger. A line begins with ``[client_id]``; for
structured logs the record has the attributes ``client_id`` and, if they are known, ``transactional_id``, ``topic``,
``partition`` and ``broker_id``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

__all__ = ["ClientLog"]


class ClientLog(logging.LoggerAdapter[logging.Logger]):
    """A logger that adds the client id to each line; created once for a client, and passed to all of its parts."""

    def __init__(self, client_id: str, transactional_id: str | None = None, name: str = "aioproducer") -> None:
        fields = {"client_id": client_id}
        if transactional_id is not None:
            fields["transactional_id"] = transactional_id
        super().__init__(logging.getLogger(name), fields)
        self._fields: Mapping[str, object] = fields
        self.client_id = client_id
        self._transactional_id = transactional_id

    def named(self, name: str) -> ClientLog:
        """The same for another logger."""
        return ClientLog(self.client_id, self._transactional_id, name)

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log the message after the client id, with ``extra`` beside the client's own fields.

        The client id is an argument, not part of the format: tools that group lines by their format see one group.
        """
        if not self.isEnabledFor(level):
            return
        text = str(msg) if args else str(msg).replace("%", "%%")
        kwargs["extra"] = {**self._fields, **(kwargs.get("extra") or {})}
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # the line is the caller's, not this one
        self.logger.log(level, f"[%s] {text}", self.client_id, *args, **kwargs)
