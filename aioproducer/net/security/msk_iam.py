"""Creates the signed request of AWS_MSK_IAM, with the credentials that botocore finds."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from typing import Any, Final

from aioproducer._version import __version__
from aioproducer.config import Secret
from aioproducer.core.sasl.mechanism import Token
from aioproducer.errors import AuthenticationError, BrokerConnectionError, ConfigError
from aioproducer.net.security.sigv4 import Keys, signed_query

__all__ = ["MskSigner"]

_REGION_OF_HOST: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?$")


class MskSigner:
    """One session with AWS's credential chain, which caches temporary credentials and renews them."""

    def __init__(self) -> None:
        self._session: Any = None

    def payload(self, host: str) -> Token:
        """Return the payload for the broker of this name; asks AWS's credential chain, which may take a while.

        Raises `ConfigError` without botocore, `AuthenticationError` without credentials or region,
        `BrokerConnectionError` if they cannot be fetched now.
        """
        named = _REGION_OF_HOST.search(host)
        keys, region = self._asked(named[1] if named else None)
        if keys is None:
            raise AuthenticationError(
                "AWS_MSK_IAM login failed: no AWS credentials were found (environment, profile, container or instance)."
            )
        if not region:
            raise AuthenticationError(f"AWS_MSK_IAM login failed: {host!r} names no AWS region; set AWS_REGION.")
        signed = signed_query(keys, host, region, datetime.now(UTC))
        about = {"version": "2020_10_22", "host": host, "user-agent": f"aioproducer/{__version__}"}
        return Token(json.dumps(about | {name.lower(): value for name, value in signed.items()}).encode())

    def _asked(self, region: str | None) -> tuple[Keys | None, str | None]:
        try:
            from botocore.session import Session  # type: ignore[import-untyped]  # it has no types
        except ImportError as error:
            raise ConfigError(
                "sasl_mechanism='AWS_MSK_IAM' needs AWS's library: pip install 'aioproducer[msk]'."
            ) from error
        try:
            if self._session is None:
                self._session = Session()
            return _keys(self._session), region or _region(self._session)
        except Exception as error:  # files, sockets and parsers may raise anything; the text may hold secrets
            kind = type(error).__name__
        raise BrokerConnectionError(f"AWS credentials cannot be fetched now: {kind}.")


def _keys(session: Any) -> Keys | None:
    credentials: Any = session.get_credentials()
    if credentials is None:
        return None
    frozen: Any = credentials.get_frozen_credentials()
    return Keys(frozen.access_key, Secret(frozen.secret_key), Secret(frozen.token) if frozen.token else None)


def _region(session: Any) -> str | None:
    """AWS's other libraries read AWS_REGION, and its containers and functions set it; botocore ignores it."""
    return os.environ.get("AWS_REGION") or session.get_config_variable("region")
