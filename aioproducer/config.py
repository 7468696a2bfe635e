"""The configuration of a producer.

The names are Kafka's in snake_case, the defaults those of Kafka 4.x's Java producer. An option that is unknown,
malformed or contradicts another one raises `ConfigError` with the reason and what to do, and no requested option is
turned off silently. No secret appears in a repr, a log line or the text of an error.

Options come from keywords, Java's properties, a URL or the environment; all four go through the same checks.
`aioproducer._config.options` declares the options, `aioproducer._config.rules` the rules between them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack

from aioproducer._config.oauth_token import OAuthToken
from aioproducer._config.option import Option
from aioproducer._config.options import (
    OPTIONS,
    Acks,
    CompressionByTopic,
    CompressionType,
    MetricReporter,
    OptionValues,
    PartitionerName,
    PartitionerOption,
    PreferredCodecs,
    ProducerOptions,
    TokenProvider,
    describe_options,
)
from aioproducer._config.problems import Problems
from aioproducer._config.rules import CONTRADICTIONS, DERIVED
from aioproducer._config.secret import Secret
from aioproducer._config.servers import DEFAULT_PORT, Address, parse_bootstrap_servers
from aioproducer.errors import ConfigError

__all__ = [
    "DEFAULT_PORT",
    "OPTIONS",
    "Acks",
    "Address",
    "CompressionByTopic",
    "CompressionType",
    "MetricReporter",
    "OAuthToken",
    "Option",
    "PartitionerName",
    "PartitionerOption",
    "PreferredCodecs",
    "ProducerConfig",
    "ProducerOptions",
    "Secret",
    "TokenProvider",
    "describe_options",
    "parse_bootstrap_servers",
]


# Most programs configure in one way, and only a wrong option needs the search for the closest name: the modules for one way
# are imported when it is used, which saves the others 10 ms.


@dataclass(frozen=True, slots=True, init=False, repr=False)
class ProducerConfig(OptionValues):
    """The options of a producer, checked and complete; immutable, comparable, and picklable with its secrets.

    ``ProducerConfig("host:9092", linger_ms=20)`` raises `ConfigError` if any option is wrong. Four values are derived from
    others if they are not given: `delivery_timeout_ms`, `close_timeout_ms`, the maximum of each backoff, and `batch_size`
    and `max_request_size` in a small `buffer_memory`.
    """

    if TYPE_CHECKING:
        # So that it is a `ConfigOf[Any, Any]`.
        @property
        def _key_type(self) -> Any: ...
        @property
        def _value_type(self) -> Any: ...

    def __init__(self, bootstrap_servers: str | Sequence[str], **options: Unpack[ProducerOptions]) -> None:
        self._fill({"bootstrap_servers": bootstrap_servers, **options})

    @classmethod
    def create(cls, bootstrap_servers: str | Sequence[str], **options: Unpack[ProducerOptions]) -> ProducerConfig:
        """The same as calling the class."""
        return cls(bootstrap_servers, **options)

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, object] | str | os.PathLike[str],
        *,
        bootstrap_servers: str | Sequence[str] | None = None,
        **overrides: Unpack[ProducerOptions],
    ) -> ProducerConfig:
        """The configuration in a Java producer's properties.

        ``properties`` is a mapping of Java's dotted keys, the path of a ``.properties`` file, or the text of one: a str
        is text if it contains a line break or ``=``, or begins with a key and ``:`` or a blank, and a path otherwise. The
        format is that of ``java.util.Properties``; a file is read as UTF-8 or, if it is not valid UTF-8, as ISO 8859-1,
        like Java. Options that Java does not have are spelled in the same way (``close.timeout.ms``). Keywords override
        the properties, and overridden properties are not checked.

        Raises `ConfigError` for unknown keys, and for keys that make no sense outside a JVM, with what to use instead.
        """
        from aioproducer._config.properties import java_options
        from aioproducer._config.properties_file import read_properties

        given = _with_servers(bootstrap_servers, overrides)
        problems = Problems()
        found = java_options(read_properties(properties), given, problems)
        return cls._from_mapping(found, given, problems)

    @classmethod
    def from_url(cls, url: str, **overrides: Unpack[ProducerOptions]) -> ProducerConfig:
        """The configuration in ``kafka://host1:9092,host2/?compression_type=zstd&acks=all``.

        The scheme selects the security protocol: ``kafka`` (PLAINTEXT), ``kafka+ssl``, ``kafka+sasl-plaintext``,
        ``kafka+sasl-ssl``; ``user:password@`` before the servers are `sasl_username` and `sasl_password`. Options are
        spelled as here or as in Java. Everything is percent-decoded, and ``+`` stays ``+``. A path is refused: topics
        belong to ``send()``. Keywords override the URL, and overridden options are not checked. No error shows the URL.
        """
        from aioproducer._config.url import url_options

        problems = Problems()
        found = url_options(url, {**overrides}, problems)
        return cls._from_mapping(found, {**overrides}, problems)

    @classmethod
    def from_env(
        cls,
        prefix: str = "KAFKA_",
        environ: Mapping[str, str] | None = None,
        *,
        bootstrap_servers: str | Sequence[str] | None = None,
        **overrides: Unpack[ProducerOptions],
    ) -> ProducerConfig:
        """The configuration in environment variables: ``KAFKA_BOOTSTRAP_SERVERS``, ``KAFKA_LINGER_MS``, ...

        Empty variables count as not set. Other programs use the same prefix (``KAFKA_HOME``, ``KAFKA_HEAP_OPTS``, a
        broker's settings), so an unknown variable is ignored, unless it is close to the name of an option or is another
        client's name for one: then it raises. Keywords override variables.
        """
        from aioproducer._config.environment import env_options

        given = _with_servers(bootstrap_servers, overrides)
        problems = Problems()
        found = env_options(prefix, os.environ if environ is None else environ, given, problems)
        if "bootstrap_servers" not in {*found, *given, *problems.options}:
            problems.add(
                ConfigError(
                    f"The environment variable {prefix}BOOTSTRAP_SERVERS is not set; set it to 'host:port,host:port', or "
                    f"pass bootstrap_servers=..."
                ),
                "bootstrap_servers",
            )
        return cls._from_mapping(found, given, problems)

    def replace(
        self, bootstrap_servers: str | Sequence[str] | None = None, **changes: Unpack[ProducerOptions]
    ) -> ProducerConfig:
        """Return a copy with some options changed, checked again as a whole.

        Values that are derived from others are derived again.
        """
        return self._from_mapping(self._given(), _with_servers(bootstrap_servers, changes))

    __replace__ = replace

    @property
    def bootstrap_addresses(self) -> tuple[Address, ...]:
        """The bootstrap servers as host and port."""
        return parse_bootstrap_servers(self.bootstrap_servers)

    def __repr__(self) -> str:
        if not hasattr(self, "_explicit"):  # a traceback shows the locals of the check that failed
            return "<ProducerConfig, not complete>"
        shown = ["'" + ",".join(self.bootstrap_servers) + "'"]
        for option in OPTIONS.values():
            value: object = getattr(self, option.name)
            if option.name in self._explicit and option.name != "bootstrap_servers" and value != option.default:
                shown.append(f"{option.name}={option.kind.show(value)}")
        return f"ProducerConfig({', '.join(shown)})"

    def __reduce__(self) -> tuple[Callable[[dict[str, object]], ProducerConfig], tuple[dict[str, object]]]:
        from aioproducer._config.pickling import require_picklable

        given = self._given()
        for name, value in given.items():
            require_picklable(name, value)
        return _restore, (given,)

    def __copy__(self) -> ProducerConfig:
        return self

    def __deepcopy__(self, memo: object) -> ProducerConfig:
        return self

    @classmethod
    def _from_mapping(
        cls,
        found: Mapping[str, object],
        overrides: Mapping[str, object] = MappingProxyType({}),
        problems: Problems | None = None,
    ) -> ProducerConfig:
        """The configuration of ``found``, replaced by ``overrides`` where both have an option."""
        config = cls.__new__(cls)
        config._fill({"bootstrap_servers": "", **found, **overrides}, problems)
        return config

    def _fill(self, options: Mapping[str, object], problems: Problems | None = None) -> None:
        problems = Problems() if problems is None else problems
        for name in options:
            if name not in OPTIONS:
                from aioproducer._config.names import unknown_option

                problems.add(unknown_option(name))
        explicit: set[str] = set()
        for option in OPTIONS.values():
            value = option.default
            if option.name in options and option.name not in problems.options:
                with problems.collecting(option.name):
                    value = option.kind.check(option.name, options[option.name])
                    if value is not None:
                        explicit.add(option.name)
            object.__setattr__(self, option.name, value)
        problems.raise_if_any()  # otherwise later errors would name values that were not given
        object.__setattr__(self, "_explicit", frozenset(explicit))
        for name, derive in DERIVED.items():
            if name not in explicit:
                object.__setattr__(self, name, derive(self))
        for contradictions in CONTRADICTIONS:
            for sentence in contradictions(self):
                problems.add(ConfigError(sentence))
        problems.raise_if_any()

    def _given(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in OPTIONS if name in self._explicit}


def _with_servers(servers: str | Sequence[str] | None, options: ProducerOptions) -> Mapping[str, object]:
    return {**options} if servers is None else {**options, "bootstrap_servers": servers}


def _restore(given: dict[str, object]) -> ProducerConfig:
    """Creates an unpickled configuration, checked by the version of aioproducer that unpickles it."""
    return ProducerConfig._from_mapping(given)  # pyright: ignore[reportPrivateUsage] - pickle needs a function
