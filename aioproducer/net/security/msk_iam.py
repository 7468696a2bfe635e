"""Signs the request that AWS_MSK_IAM shows, with AWS's own signer and wherever it finds credentials (botocore)."""

from __future__ import annotations

import json
import re
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from aioproducer._version import __version__
from aioproducer.core.sasl.mechanism import Token
from aioproducer.errors import AuthenticationError, BrokerConnectionError, ConfigError

__all__ = ["signed_payload"]

_LIFE_S: Final = 900
_REGION_OF_HOST: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?$")


def signed_payload(host: str) -> Token:
    """What to show the broker of this name; asks the chain of AWS credentials, which may take a while.

    Raises `ConfigError` without botocore, `AuthenticationError` without credentials or region, `BrokerConnectionError` where
    they cannot be fetched now.
    """
    try:
        from botocore.auth import SigV4QueryAuth  # type: ignore[import-untyped]  # it has no types
        from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
        from botocore.exceptions import BotoCoreError  # type: ignore[import-untyped]
        from botocore.session import Session  # type: ignore[import-untyped]
    except ImportError as error:
        raise ConfigError("sasl_mechanism='AWS_MSK_IAM' needs AWS's signer: pip install 'aioproducer[msk]'.") from error
    session: Any = Session()
    try:
        credentials: Any = session.get_credentials()
        frozen: Any = None if credentials is None else credentials.get_frozen_credentials()
    except BotoCoreError as error:
        raise BrokerConnectionError(f"AWS gives no credentials now: {type(error).__name__}.") from error
    if frozen is None:
        raise AuthenticationError(
            "AWS_MSK_IAM login failed: no AWS credentials were found (environment, profile, container or instance)."
        )
    named = _REGION_OF_HOST.search(host)
    region = named[1] if named else session.get_config_variable("region")
    if not region:
        raise AuthenticationError(f"AWS_MSK_IAM login failed: {host!r} names no AWS region; set AWS_REGION.")
    request: Any = AWSRequest(method="GET", url=f"https://{host}/?Action=kafka-cluster%3AConnect")
    signer: Any = SigV4QueryAuth(frozen, "kafka-cluster", region, expires=_LIFE_S)
    signer.add_auth(request)
    signed = {key.lower(): value for key, value in parse_qsl(urlsplit(str(request.url)).query)}
    about = {"version": "2020_10_22", "host": host, "user-agent": f"aioproducer/{__version__}"}
    return Token(json.dumps(about | signed).encode())
