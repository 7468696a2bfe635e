"""Checks the signature of an AWS_MSK_IAM login as documented by AWS: Signature Version 4 of ``kafka-cluster:Connect``."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

__all__ = ["AwsKeys", "refusal"]

_LIFE: Final = timedelta(minutes=15)
_EMPTY: Final = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """The client's signing keys; ``host`` is the broker name that must be signed."""

    access_key: str
    secret_key: str = field(repr=False)
    region: str = "us-east-1"
    session_token: str | None = field(default=None, repr=False)
    host: str = "127.0.0.1"


def refusal(said: bytes, keys: AwsKeys) -> str | None:
    """Why the payload is refused; None if it is accepted."""
    try:
        payload: dict[str, Any] = {key.lower(): value for key, value in json.loads(said).items()}
        when = datetime.strptime(payload["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        scope = payload["x-amz-credential"].split("/")
    except (ValueError, KeyError, AttributeError) as error:
        return f"not a payload: {error!r}"
    problems = {
        "version": payload.get("version") != "2020_10_22",
        "host": payload.get("host") != keys.host,
        "user-agent": not payload.get("user-agent"),
        "action": payload.get("action") != "kafka-cluster:Connect",
        "algorithm": payload.get("x-amz-algorithm") != "AWS4-HMAC-SHA256",
        "signed headers": payload.get("x-amz-signedheaders") != "host",
        "session token": payload.get("x-amz-security-token") != keys.session_token,
        "date": abs(datetime.now(UTC) - when) > _LIFE,
        "expires": not 0 < int(payload.get("x-amz-expires", 0)) <= _LIFE.total_seconds(),
        "credential": scope != [keys.access_key, f"{when:%Y%m%d}", keys.region, "kafka-cluster", "aws4_request"],
    }
    wrong = [name for name, is_wrong in problems.items() if is_wrong]
    if wrong:
        return f"wrong {', '.join(wrong)}"
    return None if hmac.compare_digest(payload["x-amz-signature"], _signature(payload, keys)) else "wrong signature"


def _signature(payload: dict[str, Any], keys: AwsKeys) -> str:
    """https://docs.aws.amazon.com/IAM/latest/UserGuide/create-signed-request.html, with all in the query."""
    names = {
        "action": "Action",
        "x-amz-algorithm": "X-Amz-Algorithm",
        "x-amz-credential": "X-Amz-Credential",
        "x-amz-date": "X-Amz-Date",
        "x-amz-expires": "X-Amz-Expires",
        "x-amz-security-token": "X-Amz-Security-Token",
        "x-amz-signedheaders": "X-Amz-SignedHeaders",
    }
    query = sorted(
        (quote(names[key], safe="-_.~"), quote(payload[key], safe="-_.~")) for key in names if key in payload
    )
    canonical = "\n".join(
        ["GET", "/", "&".join(f"{key}={value}" for key, value in query), f"host:{payload['host']}", "", "host", _EMPTY]
    )
    scope = payload["x-amz-credential"].split("/", 1)[1]
    text = "\n".join(["AWS4-HMAC-SHA256", payload["x-amz-date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = f"AWS4{keys.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, text.encode(), "sha256").hexdigest()
