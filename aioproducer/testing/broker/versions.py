"""The request versions that each Kafka release supports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from aioproducer.errors import ConfigError
from aioproducer.protocol import ApiKey

__all__ = ["NEWEST_RELEASE", "RELEASES", "Release", "VersionRange", "api_key_of", "release"]

VersionRange: TypeAlias = tuple[int, int]

_HOUR_MS = 3_600_000
_NO_LIMIT = 2**63 - 1

#: The changes of each release: lowest and highest version of a request. Releases that are not listed changed nothing that
#: a producer, or a reader of its log, can see. Produce 0 to 2 are still advertised after 4.0 removed them, because of a
#: bug in a client (KAFKA-18659).
_ADDED: tuple[tuple[str, dict[str, VersionRange]], ...] = (
    (
        "2.1",
        {
            "Produce": (0, 7),
            "Fetch": (0, 10),
            "ListOffsets": (0, 4),
            "Metadata": (0, 7),
            "OffsetCommit": (0, 6),
            "OffsetFetch": (0, 5),
            "FindCoordinator": (0, 2),
            "JoinGroup": (0, 3),
            "Heartbeat": (0, 2),
            "LeaveGroup": (0, 2),
            "SyncGroup": (0, 2),
            "SaslHandshake": (0, 1),
            "ApiVersions": (0, 2),
            "CreateTopics": (0, 3),
            "DeleteTopics": (0, 3),
            "InitProducerId": (0, 1),
            "AddPartitionsToTxn": (0, 1),
            "AddOffsetsToTxn": (0, 1),
            "EndTxn": (0, 1),
            "WriteTxnMarkers": (0, 0),
            "TxnOffsetCommit": (0, 2),
            "DescribeConfigs": (0, 2),
            "SaslAuthenticate": (0, 0),
        },
    ),
    ("2.2", {"ListOffsets": (0, 5), "JoinGroup": (0, 4), "SaslAuthenticate": (0, 1)}),
    (
        "2.3",
        {
            "Fetch": (0, 11),
            "Metadata": (0, 8),
            "OffsetCommit": (0, 7),
            "JoinGroup": (0, 5),
            "Heartbeat": (0, 3),
            "SyncGroup": (0, 3),
        },
    ),
    (
        "2.4",
        {
            "Produce": (0, 8),
            "Metadata": (0, 9),
            "OffsetCommit": (0, 8),
            "OffsetFetch": (0, 6),
            "FindCoordinator": (0, 3),
            "JoinGroup": (0, 6),
            "Heartbeat": (0, 4),
            "LeaveGroup": (0, 4),
            "SyncGroup": (0, 4),
            "ApiVersions": (0, 3),
            "CreateTopics": (0, 5),
            "DeleteTopics": (0, 4),
            "InitProducerId": (0, 2),
        },
    ),
    (
        "2.5",
        {
            "OffsetFetch": (0, 7),
            "JoinGroup": (0, 7),
            "SyncGroup": (0, 5),
            "InitProducerId": (0, 3),
            "TxnOffsetCommit": (0, 3),
            "SaslAuthenticate": (0, 2),
        },
    ),
    ("2.6", {"DescribeConfigs": (0, 3)}),
    (
        "2.7",
        {
            "Fetch": (0, 12),
            "CreateTopics": (0, 6),
            "DeleteTopics": (0, 5),
            "InitProducerId": (0, 4),
            "AddPartitionsToTxn": (0, 2),
            "AddOffsetsToTxn": (0, 2),
            "EndTxn": (0, 2),
        },
    ),
    (
        "2.8",
        {
            "Produce": (0, 9),
            "ListOffsets": (0, 6),
            "Metadata": (0, 11),
            "CreateTopics": (0, 7),
            "DeleteTopics": (0, 6),
            "AddPartitionsToTxn": (0, 3),
            "AddOffsetsToTxn": (0, 3),
            "EndTxn": (0, 3),
            "WriteTxnMarkers": (0, 1),
            "DescribeConfigs": (0, 4),
            "DescribeProducers": (0, 0),
        },
    ),
    (
        "3.0",
        {
            "ListOffsets": (0, 7),
            "OffsetFetch": (0, 8),
            "FindCoordinator": (0, 4),
            "DescribeTransactions": (0, 0),
            "ListTransactions": (0, 0),
        },
    ),
    ("3.1", {"Fetch": (0, 13), "Metadata": (0, 12)}),
    ("3.2", {"JoinGroup": (0, 9), "LeaveGroup": (0, 5)}),
    ("3.3", {}),
    ("3.4", {}),
    ("3.5", {"Fetch": (0, 15), "ListOffsets": (0, 8)}),
    ("3.6", {"OffsetCommit": (0, 9), "AddPartitionsToTxn": (0, 4)}),
    (
        "3.7",
        {
            "Produce": (0, 10),
            "Fetch": (0, 16),
            "OffsetFetch": (0, 9),
            "GetTelemetrySubscriptions": (0, 0),
            "PushTelemetry": (0, 0),
        },
    ),
    (
        "3.8",
        {
            "Produce": (0, 11),
            "FindCoordinator": (0, 5),
            "InitProducerId": (0, 5),
            "AddPartitionsToTxn": (0, 5),
            "AddOffsetsToTxn": (0, 4),
            "EndTxn": (0, 4),
            "TxnOffsetCommit": (0, 4),
            "ListTransactions": (0, 1),
        },
    ),
    ("3.9", {"Fetch": (0, 17), "ListOffsets": (0, 9), "FindCoordinator": (0, 6), "ApiVersions": (0, 4)}),
    (
        "4.0",
        {
            "Produce": (0, 12),
            "Fetch": (4, 17),
            "ListOffsets": (1, 10),
            "Metadata": (0, 13),
            "OffsetCommit": (2, 9),
            "OffsetFetch": (1, 9),
            "CreateTopics": (2, 7),
            "DeleteTopics": (1, 6),
            "EndTxn": (0, 5),
            "WriteTxnMarkers": (1, 1),
            "TxnOffsetCommit": (0, 5),
            "DescribeConfigs": (1, 4),
        },
    ),
    (
        "4.1",
        {
            "Produce": (0, 13),
            "Fetch": (4, 18),
            "OffsetCommit": (2, 10),
            "OffsetFetch": (1, 10),
            "ListTransactions": (0, 2),
        },
    ),
    ("4.2", {"ListOffsets": (1, 11), "WriteTxnMarkers": (1, 2)}),
    ("4.3", {}),
    ("4.4", {"ApiVersions": (0, 5), "TxnOffsetCommit": (0, 6)}),
)


@dataclass(frozen=True, slots=True)
class Release:
    """A Kafka release as its clients see it: the version range of each request, and how its responses differ."""

    name: str
    ranges: Mapping[ApiKey, VersionRange]

    @property
    def number(self) -> tuple[int, int]:
        """Major and minor as numbers, to be compared."""
        major, minor = self.name.split(".")
        return int(major), int(minor)

    @property
    def names_its_api_versions_range(self) -> bool:
        """Whether the refusal of an ApiVersions request contains that request's own range (KIP-511)."""
        return self.number >= (2, 4)

    @property
    def knows_invalid_record(self) -> bool:
        """Whether INVALID_RECORD exists (KIP-467); earlier brokers return CORRUPT_MESSAGE."""
        return self.number >= (2, 4)

    @property
    def accepts_unknown_producers(self) -> bool:
        """Whether a producer without state may start at any sequence (KIP-360); before it: UNKNOWN_PRODUCER_ID."""
        return self.number >= (2, 5)

    @property
    def has_topic_ids(self) -> bool:
        """Whether topics have ids (KIP-516); before, they are zero."""
        return self.number >= (2, 8)

    @property
    def transaction_version(self) -> int:
        """The transaction.version that a new cluster of this release finalizes (KIP-890); 0 means there is none."""
        return 2 if self.number >= (4, 0) else 0

    @property
    def knows_transaction_abortable(self) -> bool:
        """Whether TRANSACTION_ABORTABLE exists (KIP-890); earlier brokers return INVALID_TXN_STATE."""
        return self.number >= (3, 8)

    @property
    def makes_groups_of_strangers(self) -> bool:
        """Whether a commit for an unknown group creates the group first (the group coordinator before KIP-848).

        Then the error is an unknown member, not an illegal generation.
        """
        return self.number < (4, 0)

    @property
    def limits_future_timestamps(self) -> bool:
        """Whether records from more than an hour ahead are refused by default (KIP-1030)."""
        return self.number >= (4, 0)

    @property
    def timestamp_limits(self) -> Mapping[str, int]:
        """The topic configurations that limit a record's timestamp, and their defaults: split in two by KIP-937."""
        before = {"message.timestamp.before.max.ms": _NO_LIMIT}
        after = {"message.timestamp.after.max.ms": _HOUR_MS if self.limits_future_timestamps else _NO_LIMIT}
        difference = {"message.timestamp.difference.max.ms": _NO_LIMIT}
        if self.number < (3, 6):
            return difference
        return before | after if self.number >= (4, 0) else before | after | difference


def api_key_of(api: ApiKey | int | str) -> ApiKey:
    """The api key for a number or a name; ``Produce``, ``produce`` and ``PRODUCE`` are the same.

    Raises ConfigError for anything else.
    """
    if isinstance(api, str):
        key = _BY_NAME.get(_plain(api))
        if key is None:
            raise ConfigError(f"There is no Kafka API named {api!r} here. Known: {', '.join(sorted(_BY_NAME))}.")
        return key
    try:
        return ApiKey(api)
    except ValueError as error:
        raise ConfigError(f"There is no Kafka API with key {api} here.") from error


def release(name: str) -> Release:
    """The release of that name, ``"2.1"`` to the newest; a third number is ignored (``"3.9.2"`` is ``"3.9"``).

    Raises ConfigError for one that is not in the table.
    """
    found = RELEASES.get(".".join(name.split(".")[:2]))
    if found is None:
        raise ConfigError(f"Kafka {name} is not known to the fake broker. Known: {', '.join(RELEASES)}.")
    return found


def _plain(name: str) -> str:
    return name.replace("_", "").casefold()


def _accumulate() -> dict[str, Release]:
    releases: dict[str, Release] = {}
    ranges: dict[ApiKey, VersionRange] = {}
    for name, added in _ADDED:
        ranges = ranges | {api_key_of(api): versions for api, versions in added.items()}
        releases[name] = Release(name, MappingProxyType(ranges))
    return releases


_BY_NAME: Mapping[str, ApiKey] = MappingProxyType({_plain(key.name): key for key in ApiKey})

#: Every release that the fake broker can imitate, oldest first.
RELEASES: Mapping[str, Release] = MappingProxyType(_accumulate())

NEWEST_RELEASE: str = list(RELEASES)[-1]
