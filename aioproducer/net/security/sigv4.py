"""AWS's Signature Version 4 of a query, for the one request that a login to MSK sends.

botocore could sign it as well, but logs at DEBUG what it signs, including the session's token.
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime
from typing import Final, NamedTuple
from urllib.parse import quote

from aioproducer.config import Secret

__all__ = ["Keys", "signed_query"]

_SERVICE: Final = "kafka-cluster"
_LIFE_S: Final = 900
_NO_BODY: Final = hashlib.sha256(b"").hexdigest()


class Keys(NamedTuple):
    """AWS credentials; temporary ones have a token."""

    access: str
    secret: Secret
    token: Secret | None = None


def signed_query(keys: Keys, host: str, region: str, now: datetime) -> dict[str, str]:
    """Return the parameters of ``GET https://host/?Action=kafka-cluster:Connect``, signed; ``now`` is in UTC."""
    moment = now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{moment[:8]}/{region}/{_SERVICE}/aws4_request"
    query = {
        "Action": "kafka-cluster:Connect",
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{keys.access}/{scope}",
        "X-Amz-Date": moment,
        "X-Amz-Expires": str(_LIFE_S),
        "X-Amz-SignedHeaders": "host",
    }
    if keys.token is not None:
        query["X-Amz-Security-Token"] = keys.token.reveal()
    said = "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in sorted(query.items()))
    canonical = f"GET\n/\n{said}\nhost:{host}\n\nhost\n{_NO_BODY}"
    key = ("AWS4" + keys.secret.reveal()).encode()
    for part in scope.split("/"):
        key = _hmac(key, part)
    to_sign = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    return query | {"X-Amz-Signature": _hmac(key, to_sign).hex()}


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
