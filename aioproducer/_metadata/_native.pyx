# cython: language_level=3, auto_pickle=False
"""The metadata of an acknowledged record, in native code: the twin of ``_python``, which defines the correct behaviour.

It stores numbers as C does, so it is one object, and refers to nothing else, so the garbage collector need not track it.
"""

from aioproducer._metadata import _python
from aioproducer._metadata._python import TimestampType, TopicPartition

cimport cython

cdef unsigned long long UNKNOWN = <unsigned long long>-1
cdef object CREATE_TIME = TimestampType.CREATE_TIME
cdef object LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class RecordMetadata:
    __doc__ = _python.RecordMetadata.__doc__
    __match_args__ = _python.RecordMetadata.__match_args__

    def __init__(
        self,
        topic,
        int partition,
        offset,
        long long timestamp_ms,
        int serialized_key_size=-1,
        int serialized_value_size=-1,
        timestamp_type=CREATE_TIME,
    ):
        self.topic = str.__str__(topic)  # of no class derived from str, which may lead anywhere
        self.partition = partition
        self.known_offset = UNKNOWN if offset == -1 else offset
        self.timestamp_ms = timestamp_ms
        self.serialized_key_size = serialized_key_size
        self.serialized_value_size = serialized_value_size
        self.is_log_append_time = TimestampType(timestamp_type) is LOG_APPEND_TIME

    @property
    def offset(self):
        return -1 if self.known_offset == UNKNOWN else self.known_offset

    @property
    def timestamp_type(self):
        return LOG_APPEND_TIME if self.is_log_append_time else CREATE_TIME

    @property
    def topic_partition(self):
        """The partition as a separate value."""
        return TopicPartition(self.topic, self.partition)

    @property
    def has_offset(self):
        """Whether the broker returned the offset."""
        return self.known_offset != UNKNOWN

    cdef tuple fields(self):
        return (
            self.topic,
            self.partition,
            self.offset,
            self.timestamp_ms,
            self.serialized_key_size,
            self.serialized_value_size,
            self.timestamp_type,
        )

    def _asdict(self):
        """The attributes by name, for logs and JSON."""
        return dict(zip(self.__match_args__, self.fields()))

    def __iter__(self):
        return iter(self.fields())

    def __eq__(self, other):
        if type(other) is not RecordMetadata:
            return NotImplemented
        return self.fields() == (<RecordMetadata>other).fields()

    def __hash__(self):
        return hash(self.fields())

    def __repr__(self):
        return f"RecordMetadata({', '.join([f'{name}={value!r}' for name, value in self._asdict().items()])})"

    def __reduce__(self):
        from aioproducer._metadata import restored

        return restored, self.fields()
