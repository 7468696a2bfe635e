"""Decides for Confluent's schema registry API: addresses, requests, checks of responses, and the sentences of its errors.

Nothing here opens a socket. The asyncio client (`client.py`) and the Spark sink's blocking one send the requests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from aioproducer.errors import ConfigError, KafkaError

__all__ = [
    "ACCEPT",
    "CONTENT_TYPE",
    "Address",
    "Advice",
    "ApiRequest",
    "RegisteredSchema",
    "RegistryUnavailable",
    "SchemaReference",
    "SchemaRegistryError",
    "answer_in",
    "by_id_request",
    "by_version_request",
    "id_in",
    "invalid_address",
    "latest_request",
    "look_up_request",
    "parse_address",
    "refusal",
    "register_request",
    "registered_in",
    "unreachable",
    "value_subject",
]

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
ACCEPT: Final = f"{CONTENT_TYPE}, application/json"

_MAX_REASON: Final = 500
_NO_SUCH: Final = 404
_CONFLICT: Final = 409
_TOO_MANY: Final = 429
_ILL: Final = 500
#: The registry's own codes for an unknown subject, version or schema. A missing page has none of them.
_NO_SUCH_SCHEMA: Final = (40401, 40402, 40403)
#: In a message with status 409: Apicurio Registry got the subject, or the version, from two clients at the same moment.
_AT_ONCE: Final = "already exists"
_AVRO: Final = "AVRO"


class SchemaRegistryError(KafkaError):
    """The registry did not return a schema or its id; the message has the reason.

    ``status`` is the HTTP status, None without a response; ``code`` is the registry's own error code, None if it sent
    none.
    """

    def __init__(self, message: str, *, status: int | None = None, code: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class RegistryUnavailable(SchemaRegistryError):
    """The registry is unreachable, or reports a failure inside it."""

    retriable = True


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another one uses.

    ``name`` is its name there: a record's full name in Avro, the text of ``$ref`` in JSON Schema, the imported file in
    Protobuf. ``subject`` and ``version`` are its place in the registry.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as the registry returned it.

    ``version`` is None if the schema was requested by its id. ``rules`` are the names of the rules of its data contract.
    """

    id: int
    version: int | None
    schema: str
    schema_type: str = _AVRO
    references: tuple[SchemaReference, ...] = ()
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Address:
    """A registry at ``url``, which has no login; ``user_info`` is the login ("user:password")."""

    url: str
    user_info: str | None = field(default=None, repr=False)


class Advice(NamedTuple):
    """The ways out that error messages name; they differ between the users of this module."""

    login: str
    missing: str
    incompatible: str
    several: str = ""


class ApiRequest(NamedTuple):
    """A request of the REST API; ``subject`` is None for one by id."""

    method: str
    path: str
    subject: str | None
    body: Mapping[str, object] | None = None


def value_subject(topic: str) -> str:
    """The subject of a topic's values (TopicNameStrategy)."""
    return f"{topic}-value"


_PARTS: Final = re.compile(r"[^/?#]*//(?P<authority>[^/?#]*)(?P<rest>.*)", re.DOTALL)
_NEXT_URL: Final = re.compile(r",\s*https?://")


def parse_address(url: str, user_info: str | None, advice: Advice) -> Address:
    """Return the address in a URL, which may contain user and password; ``user_info`` is used instead of these.

    Raises `ConfigError`, without repeating them, if the URL or the login is invalid.
    """
    _check_url(url, advice)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise ConfigError("invalid URL of the schema registry: must be like http://host:8081 or https://...")
    name = f"[{host}]" if ":" in host else host
    plain = urlunsplit((parts.scheme, name if port is None else f"{name}:{port}", parts.path.rstrip("/"), "", ""))
    if user_info is None and parts.username is not None:
        user_info = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    if user_info is not None and ":" not in user_info:
        raise ConfigError("invalid login of the schema registry: must be user:password.")
    return Address(plain, user_info)


def _check_url(url: str, advice: Advice) -> None:
    """Raise `ConfigError` for a URL that would be misread, without repeating any of it."""
    found = _PARTS.match(url)
    authority, rest = ("", "") if found is None else found.group("authority", "rest")
    if _NEXT_URL.search(url) or "," in authority.rpartition("@")[2]:
        raise ConfigError(
            f"The URL of the schema registry must be one address (http://host:8081), not a list.{advice.several}"
        )
    if "@" in rest:
        raise ConfigError(
            "The URL of the schema registry has an '@' after its first '/', '?' or '#', where a login is not allowed. In "
            "user and password write %2F for '/', %3F for '?' and %23 for '#', or leave them out of the URL and "
            f"{advice.login}."
        )


def register_request(
    subject: str,
    schema: str,
    schema_type: str = _AVRO,
    references: Sequence[SchemaReference] = (),
    *,
    normalize: bool = False,
) -> ApiRequest:
    """The request that registers a schema under a subject, or returns its id if it is registered."""
    path = f"/subjects/{quote(subject, safe='')}/versions{_query(normalize)}"
    return ApiRequest("POST", path, subject, _schema_body(schema, schema_type, references))


def look_up_request(
    subject: str,
    schema: str,
    schema_type: str = _AVRO,
    references: Sequence[SchemaReference] = (),
    *,
    normalize: bool = False,
) -> ApiRequest:
    """The request for the id and version of a schema that is registered under the subject."""
    path = f"/subjects/{quote(subject, safe='')}{_query(normalize)}"
    return ApiRequest("POST", path, subject, _schema_body(schema, schema_type, references))


def latest_request(subject: str) -> ApiRequest:
    """The request for the latest version of a subject."""
    return ApiRequest("GET", f"/subjects/{quote(subject, safe='')}/versions/latest", subject)


def by_version_request(subject: str, version: int) -> ApiRequest:
    """The request for one version of a subject; schemas in use may refer to a deleted one."""
    return ApiRequest("GET", f"/subjects/{quote(subject, safe='')}/versions/{version}?deleted=true", subject)


def by_id_request(schema_id: int) -> ApiRequest:
    """The request for the schema with this id."""
    return ApiRequest("GET", f"/schemas/ids/{schema_id}", None)


def _query(normalize: bool) -> str:
    return "?normalize=true" if normalize else ""


def _schema_body(schema: str, schema_type: str, references: Sequence[SchemaReference]) -> dict[str, object]:
    body: dict[str, object] = {"schema": schema}
    if schema_type != _AVRO:  # registries older than 5.5 do not know the field
        body["schemaType"] = schema_type
    if references:
        body["references"] = [
            {"name": each.name, "subject": each.subject, "version": each.version} for each in references
        ]
    return body


def answer_in(url: str, content: bytes) -> dict[str, Any]:
    """The object that a successful response holds, empty if it is of another type.

    Raises `SchemaRegistryError` for content that is not JSON.
    """
    try:
        found: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise SchemaRegistryError(f"The server at {url} is not a schema registry: it did not send JSON.") from error
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def id_in(url: str, answer: Mapping[str, Any]) -> int:
    """The schema id in a response; raises `SchemaRegistryError` if it has none, or one that a record cannot hold."""
    found: Any = answer.get("id")
    if not isinstance(found, int) or isinstance(found, bool) or not 0 <= found < 1 << 31:
        raise SchemaRegistryError(f"The server at {url} is not a schema registry: its response has no schema id.")
    return found


def registered_in(url: str, answer: Mapping[str, Any], schema_id: int | None = None) -> RegisteredSchema:
    """The schema in a response; ``schema_id`` is the id that was requested, as the response does not repeat it.

    Raises `SchemaRegistryError` if the response has no schema, or parts of it are of a wrong type.
    """
    found: Any = answer.get("schema")
    version: Any = answer.get("version")
    kind: Any = answer.get("schemaType") or _AVRO
    if isinstance(found, str) and isinstance(kind, str) and (version is None or isinstance(version, int)):
        try:
            references = tuple(_reference(each) for each in answer.get("references") or ())
            rules = tuple(_rules(answer.get("ruleSet") or {}))
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError):
            pass
        else:
            number = id_in(url, answer) if schema_id is None else schema_id
            return RegisteredSchema(number, version, found, kind.upper(), references, rules)
    raise SchemaRegistryError(f"The server at {url} is not a schema registry: its response has no schema.")


def _reference(answer: Mapping[str, Any]) -> SchemaReference:
    return SchemaReference(str(answer["name"]), str(answer["subject"]), int(answer["version"]))


def _rules(rule_set: Mapping[str, Any]) -> Iterable[str]:
    for phase in ("domainRules", "migrationRules", "encodingRules"):
        for rule in rule_set.get(phase) or ():
            yield str(rule.get("name", "unnamed"))


#: The meaning of a status, and what to do.
_MEANINGS: Final[Mapping[int, str]] = {
    401: "rejects the login, or requires one: {message} Put user and password into its URL, or {advice.login}.",
    403: "does not permit this login to do that {target}: {message}",
    _NO_SUCH: "does not have this schema {target}: {message}{missing}",
    409: "rejects the schema as incompatible with the versions of subject {subject!r}: {message} {advice.incompatible}",
    422: "rejects the schema as invalid: {message}",
}
_OTHER: Final = "answered with HTTP status {status} {target}: {message}"
_COLLISION: Final = "got a schema of another client {target} at the same moment: {message}"


def refusal(
    url: str, status: int, reason: str, content: bytes, request: ApiRequest, advice: Advice
) -> SchemaRegistryError:
    """The error for a response without success; ``reason`` is the one of HTTP, used if the content has no message.

    It is a `RegistryUnavailable` if the registry failed, and ``retriable`` if a later request may succeed.
    """
    code, message = _error_in(content, reason)
    kind = RegistryUnavailable if status >= _ILL else SchemaRegistryError
    is_collision = status == _CONFLICT and _AT_ONCE in message and "ncompatible" not in message
    if status == _NO_SUCH and code not in _NO_SUCH_SCHEMA:
        text = f"There is no schema registry at {url}: {message} Check the address and its path."
    else:
        missing = "" if request.body is None else advice.missing
        target = "for this id" if request.subject is None else f"for subject {request.subject!r}"
        sentence = (_COLLISION if is_collision else _MEANINGS.get(status, _OTHER)).format(
            status=status, target=target, subject=request.subject, message=message, advice=advice, missing=missing
        )
        text = f"The schema registry at {url} {sentence}"
    error = kind(text, status=status, code=code)
    error.retriable = status >= _ILL or status == _TOO_MANY or is_collision
    return error


def unreachable(url: str, reason: object) -> RegistryUnavailable:
    """The error for a connection that could not be opened, or broke."""
    return RegistryUnavailable(f"Could not connect to the schema registry at {url}: {reason}.")


def invalid_address(url: str, reason: object) -> SchemaRegistryError:
    """The error for a URL that passes `parse_address` and cannot be requested."""
    return SchemaRegistryError(
        f"Could not connect to the schema registry at {url}: the address is invalid, or characters of it have "
        f"to be escaped ({reason})."
    )


def _error_in(content: bytes, reason: str) -> tuple[int | None, str]:
    """The registry's own error code (None: it sent none), and its message or the one of HTTP, as one line."""
    code: int | None = None
    message = reason
    try:
        found: Any = json.loads(content)
        number: Any = found.get("error_code")
        code = number if isinstance(number, int) else None
        message = str(found["message"])
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        pass
    return code, " ".join(message[:_MAX_REASON].split()).rstrip(".") + "."
