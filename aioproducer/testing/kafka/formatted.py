"""Formatted data directories: Kafka's own tool formats the first one, and the others are copies with different ids.

The tool is a Java program: with one broker and a controller, its two runs were a fifth of a cluster's processor time.
What it writes depends on the Kafka version and the tool's arguments only, except for the two ids.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["FormattedDirectory"]

_PROPERTIES: Final = "meta.properties"


class FormattedDirectory(NamedTuple):
    """The files that the tool has written into one data directory, by their paths there.

    Beside the properties there is a checkpoint: in the directory itself, or since Kafka 4.4 in the metadata's log.
    """

    files: Mapping[str, bytes]

    @classmethod
    def read(cls, directory: Path) -> FormattedDirectory:
        """The files of a directory that has been formatted and not been used yet."""
        files = sorted(path for path in directory.rglob("*") if path.is_file())
        return cls({path.relative_to(directory).as_posix(): path.read_bytes() for path in files})

    def write(self, directory: Path, node_id: int) -> None:
        """Format the data directory of another node, or of the same one in another cluster, like this one."""
        directory.mkdir()
        for name, content in self.files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        properties = directory / _PROPERTIES
        text = re.sub(r"(?m)^node\.id=.*$", f"node.id={node_id}", properties.read_text())
        properties.write_text(re.sub(r"(?m)^directory\.id=.*$", f"directory.id={_directory_id()}", text))


def _directory_id() -> str:
    """A random id as org.apache.kafka.common.Uuid writes it, without a dash at its beginning, as there."""
    text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    return f"_{text[1:]}" if text.startswith("-") else text
