"""The kinds of values of options: each one checks a value, and parses one from text."""

from __future__ import annotations

import math
import os
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, cast

from aioproducer import serializers
from aioproducer._config.refusal import refusal, shown
from aioproducer._config.secret import Secret
from aioproducer.arguments import is_async
from aioproducer.errors import ConfigError
from aioproducer.serializers import MessageField, Serializer, prepare_serializer

__all__ = [
    "AcksChoice",
    "Choice",
    "Ciphers",
    "File",
    "Flag",
    "Hook",
    "Hooks",
    "Kind",
    "PartitionerHook",
    "Pem",
    "ProxyUrl",
    "Real",
    "SecretText",
    "SerializerHook",
    "SslContext",
    "Text",
    "Whole",
    "members",
]


# Kinds are never compared or shown, so they have no methods for it: generating these would take 2 ms of each import.


class Kind:
    """The valid values of an option."""

    #: Whether None is a valid value.
    optional: bool = False

    def check(self, name: str, value: object) -> object:
        """``value`` as the configuration stores it; raises `ConfigError` if it is invalid."""
        if value is None:
            if self.optional:
                return None
            raise refusal(name, value, f"{self.allowed()}; leave the option out for its default")
        return self.convert(name, value)

    def parse(self, name: str, text: str) -> object:
        """The value that ``text`` spells, not checked yet."""
        return text

    def convert(self, name: str, value: object) -> object:
        raise NotImplementedError  # each kind of value has its own

    def allowed(self) -> str:
        raise NotImplementedError  # each kind of value has its own

    def show(self, value: object) -> str:
        """``value`` in a repr, in a table or in an error."""
        return shown(value)


@dataclass(eq=False, repr=False)
class Whole(Kind):
    """An integer from ``low`` to ``high``, in ``unit``."""

    low: int = 0
    high: int = 2**63 - 1
    unit: str = ""
    optional: bool = False

    def convert(self, name: str, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not self.low <= value <= self.high:
            raise refusal(name, value, self.allowed())
        return int(value)

    def parse(self, name: str, text: str) -> int:
        if re.fullmatch(r"[+-]?[0-9]{1,19}", text.strip()) is None:
            raise refusal(name, text, self.allowed())
        return int(text)

    def allowed(self) -> str:
        number = f"a whole number{f' of {self.unit}' if self.unit else ''}"
        return f"{number}, at least {self.low}" if self.high == 2**63 - 1 else f"{number}, {self.low} to {self.high}"


@dataclass(eq=False, repr=False)
class Real(Kind):
    low: float
    high: float

    def convert(self, name: str, value: object) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool) or not self.low <= value <= self.high:
            raise refusal(name, value, self.allowed())
        return float(value)

    def parse(self, name: str, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            raise refusal(name, text, self.allowed())
        return number

    def allowed(self) -> str:
        return f"a number from {self.low} to {self.high}"


class Flag(Kind):
    _texts: Final = MappingProxyType({"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False})

    def convert(self, name: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise refusal(name, value, self.allowed())
        return value

    def parse(self, name: str, text: str) -> bool:
        value = self._texts.get(text.strip().lower())
        if value is None:
            raise refusal(name, text, "true or false")
        return value

    def allowed(self) -> str:
        return "True or False"


@dataclass(eq=False, repr=False)
class Text(Kind):
    empty: bool = False
    optional: bool = False

    def convert(self, name: str, value: object) -> str:
        if not isinstance(value, str) or not (value or self.empty) or not _is_utf_8(value):
            raise refusal(name, value, self.allowed())
        return value

    def allowed(self) -> str:
        return "text" if self.empty else "text that is not empty"


_PEM_FILE = "ssl_cafile, ssl_certfile or ssl_keyfile"
_PEM_TEXT = "ssl_truststore_certificates, ssl_keystore_certificate_chain or ssl_keystore_key"


class File(Kind):
    optional = True

    def convert(self, name: str, value: object) -> str:
        path = os.fspath(cast("os.PathLike[str]", value)) if hasattr(value, "__fspath__") else value
        if not isinstance(path, str) or not path:
            raise refusal(name, value, self.allowed())
        if "-----BEGIN " in path:
            raise ConfigError(f"{name} is {self.allowed()}, but PEM text was given; pass that as {_PEM_TEXT}.")
        return path

    def allowed(self) -> str:
        return "the path of a file"


class Pem(Kind):
    """Certificates as text; never shown, because there may be a key among them."""

    optional = True

    def convert(self, name: str, value: object) -> str:
        if not isinstance(value, str) or "-----BEGIN " not in value:
            raise ConfigError(f"{name} must be {self.allowed()}, with lines -----BEGIN; pass a file as {_PEM_FILE}.")
        return value

    def allowed(self) -> str:
        return "certificates as PEM text"

    def show(self, value: object) -> str:
        return "None" if value is None else "<PEM text>"


class SecretText(Kind):
    """Text that must not appear in any error."""

    optional = True

    def convert(self, name: str, value: object) -> Secret:
        if not isinstance(value, str | Secret) or not value:
            raise ConfigError(f"{name} must be {self.allowed()}; the given value is {_type_of(value)}.")
        if not _is_utf_8(Secret(value).reveal()):
            raise ConfigError(
                f"{name} has characters that UTF-8 cannot encode; it may have been read in another encoding."
            )
        return Secret(value)

    def allowed(self) -> str:
        return "a str or a Secret that is not empty"


class ProxyUrl(SecretText):
    """The URL of a proxy, which may hold a password; no error shows any of it."""

    # The parser is imported here because few producers have a proxy.

    def convert(self, name: str, value: object) -> Secret:
        from aioproducer._config.proxy_url import parse_proxy

        secret = super().convert(name, value)
        parse_proxy(secret, name)
        return secret

    def allowed(self) -> str:
        return "'socks5://host:1080', 'socks5h://host:1080' or 'http://host:3128', with user:password@ before the host"

    def show(self, value: object) -> str:
        from aioproducer._config.proxy_url import parse_proxy

        if not isinstance(value, Secret):
            return super().show(value)
        proxy = parse_proxy(value)
        return repr(str(proxy) if proxy.username is None else str(proxy).replace("://", "://***@", 1))


@dataclass(eq=False, repr=False)
class Choice(Kind):
    choices: tuple[str, ...]
    optional: bool = False

    def convert(self, name: str, value: object) -> str:
        # Kafka ignores case for most of these, so the caller's spelling is corrected.
        for choice in self.choices:
            if isinstance(value, str) and value.strip().lower() == choice.lower():
                return choice
        from difflib import get_close_matches  # only for the error's suggestion

        raise refusal(name, value, self.allowed(), nearest=get_close_matches(str(value), self.choices, 1))

    def allowed(self) -> str:
        return f"one of {', '.join(map(repr, self.choices))}"


class AcksChoice(Kind):
    _values: Final = MappingProxyType({"all": -1, "-1": -1, "0": 0, "1": 1})

    def convert(self, name: str, value: object) -> int:
        acks = None if isinstance(value, bool) else self._values.get(str(value).strip().lower())
        if acks is None:
            raise refusal(name, value, self.allowed())
        return acks

    def allowed(self) -> str:
        return "'all' (the same as -1), 1 or 0"

    def show(self, value: object) -> str:
        return "'all'" if value == -1 else str(value)


@dataclass(eq=False, repr=False)
class Ciphers(Kind):
    """Names of ciphers; in a single text, separated by commas or colons, as in OpenSSL and Java."""

    def convert(self, name: str, value: object) -> tuple[str, ...]:
        words = tuple(filter(None, re.split(r"[,:\s]+", value))) if isinstance(value, str) else members(value)
        if not all(isinstance(word, str) and word for word in words):
            raise refusal(name, value, self.allowed())
        for word in cast("tuple[str, ...]", words):
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", word):  # '@SECLEVEL=0' and the like would weaken the rest
                raise refusal(name, word, f"{self.allowed()}; for OpenSSL's rules pass an ssl_context")
            # OpenSSL ignores a name that it does not know, as long as it knows one of the others.
            if word.upper().startswith(("TLS_", "SSL_")):
                raise refusal(name, word, f"{self.allowed()}; TLS 1.3 ciphers need an ssl_context")
        return cast("tuple[str, ...]", words)

    def allowed(self) -> str:
        return "a sequence of OpenSSL's names, such as 'ECDHE-RSA-AES256-GCM-SHA384'"


@dataclass(eq=False, repr=False)
class Hook(Kind):
    """A callable, or an object with one of ``methods``."""

    what: str
    methods: tuple[str, ...] = ()
    optional: bool = True

    def convert(self, name: str, value: object) -> object:
        if not self.fits(value):
            # Not shown: it may be a token, given in place of its provider.
            raise ConfigError(f"{name} must be {self.allowed()}; the given value is {_type_of(value)}.")
        return value

    def parse(self, name: str, text: str) -> object:
        raise ConfigError(
            f"{name} must be {self.allowed()}, which cannot be given as text; pass it as a keyword in Python."
        )

    def fits(self, value: object) -> bool:
        return callable(value) or any(callable(getattr(value, method, None)) for method in self.methods)

    def allowed(self) -> str:
        return self.what

    def show(self, value: object) -> str:
        return _name_of(value)


#: Java's serializers, each with our equivalent, or None if bytes are sent unchanged.
_JAVA_SERIALIZERS: Final[Mapping[str, str | None]] = MappingProxyType(
    {
        "ByteArraySerializer": None,
        "ByteBufferSerializer": None,
        "BytesSerializer": None,
        "StringSerializer": "StringSerializer",
        "IntegerSerializer": "IntegerSerializer",
        "LongSerializer": "LongSerializer",
    }
)


@dataclass(eq=False, repr=False)
class SerializerHook(Kind):
    field: MessageField
    optional: bool = True

    def convert(self, name: str, value: object) -> object:
        prepare_serializer(cast("Serializer", value), self.field)
        return value

    def parse(self, name: str, text: str) -> object:
        class_name = text.strip().rsplit(".", 1)[-1]
        if class_name not in _JAVA_SERIALIZERS:
            raise refusal(name, text, f"one of Java's {', '.join(_JAVA_SERIALIZERS)}, or a callable passed in Python")
        ours = _JAVA_SERIALIZERS[class_name]
        return None if ours is None else getattr(serializers, ours)()

    def allowed(self) -> str:
        return "a callable f(obj) or f(obj, ctx), plain or async"

    def show(self, value: object) -> str:
        return _name_of(value)


class PartitionerHook(Hook):
    _own_names: Final = (
        "round_robin",
        "consistent",
        "consistent_random",
        "murmur2",
        "murmur2_random",
        "fnv1a",
        "fnv1a_random",
    )
    _names: Final = MappingProxyType({name: name for name in _own_names} | {"RoundRobinPartitioner": "round_robin"})

    def fits(self, value: object) -> bool:
        if isinstance(value, str | bytes | bytearray):  # which also have a method partition()
            return value in self._own_names
        return super().fits(value)

    def convert(self, name: str, value: object) -> object:
        if is_async(value) or is_async(getattr(value, "partition", None)):
            raise ConfigError(
                f"{name} must be a plain function, not async def: a record gets its partition at the moment when it is "
                f"put into the buffer. Put asynchronous work into an interceptor's on_send()."
            )
        return super().convert(name, value)

    def parse(self, name: str, text: str) -> object:
        known = self._names.get(text.strip().rsplit(".", 1)[-1])
        if known is None:
            raise refusal(name, text, f"{self.allowed()}; only the names can be given as text")
        return known


@dataclass(eq=False, repr=False)
class Hooks(Hook):
    """A sequence of objects, each with at least one of ``methods``."""

    optional: bool = False

    def convert(self, name: str, value: object) -> tuple[object, ...]:
        objects = members(value)
        for member in objects:
            if isinstance(member, type) or not any(callable(getattr(member, method, None)) for method in self.methods):
                # Not shown: it may be a token.
                raise ConfigError(f"{name} must be {self.allowed()}; one of the given objects is {_type_of(member)}.")
        return objects

    def show(self, value: object) -> str:
        names = [_name_of(member) for member in members(value)]
        return f"({names[0]},)" if len(names) == 1 else f"({', '.join(names)})"


class SslContext(Hook):
    def fits(self, value: object) -> bool:
        return isinstance(value, ssl.SSLContext)


def members(value: object) -> tuple[object, ...]:
    """The members of a sequence; any other value is the only member, and is refused later."""
    return tuple(cast("Iterable[object]", value)) if hasattr(value, "__iter__") else (value,)


def _is_utf_8(text: str) -> bool:
    """Whether the text can be sent to a broker: not if it was read from an environment in another encoding."""
    return re.search("[\ud800-\udfff]", text) is None


def _name_of(value: object) -> str:
    """Describes a foreign object by its type; its repr may show secrets, as that of functools.partial does."""
    if value is None or isinstance(value, str):
        return repr(value)
    return getattr(value, "__qualname__", None) or f"<{type(value).__qualname__}>"


def _type_of(value: object) -> str:
    return "empty" if value == "" or value == Secret("") else f"of type {type(value).__name__}"
