"""The sentence for a TLS handshake that failed: what the certificate lacks, or who it was that answered instead."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from aioproducer.errors import AuthenticationError, BrokerConnectionError

__all__ = ["HostRefused", "explain_tls_failure"]

#: OpenSSL's X509_V_ERR_ codes.
_EXPIRED: Final = 10
_NOT_YET_VALID: Final = 9
_HOSTNAME_MISMATCH: Final = frozenset((62, 64))
_UNKNOWN_ISSUER: Final = frozenset((2, 18, 19, 20, 21))
_REVOKED: Final = 23

_IS_IT_PLAINTEXT: Final = (
    "did not answer in TLS: is this a listener without TLS (security_protocol PLAINTEXT or SASL_PLAINTEXT), "
    "or not Kafka?"
)

#: What the reasons of OpenSSL mean, for those that say something about the configuration of either side.
_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "WRONG_VERSION_NUMBER": _IS_IT_PLAINTEXT,
        "HTTP_REQUEST": _IS_IT_PLAINTEXT,
        "UNKNOWN_PROTOCOL": _IS_IT_PLAINTEXT,
        "PACKET_LENGTH_TOO_LONG": _IS_IT_PLAINTEXT,
        "RECORD_LAYER_FAILURE": _IS_IT_PLAINTEXT,
        "UNSUPPORTED_PROTOCOL": "speaks only versions of TLS that are older than ssl_min_version",
        "TLSV1_ALERT_PROTOCOL_VERSION": "refused the versions of TLS that ssl_min_version leaves",
        "SSLV3_ALERT_HANDSHAKE_FAILURE": (
            "found no way to agree on TLS; does it want a client certificate (ssl_certfile), or other ssl_cipher_suites?"
        ),
        "TLSV13_ALERT_CERTIFICATE_REQUIRED": "wants a client certificate; give it one with ssl_certfile and ssl_keyfile",
        "TLSV1_ALERT_UNKNOWN_CA": "does not trust the authority that signed this client's certificate (ssl_certfile)",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED": "says that this client's certificate (ssl_certfile) is expired",
        "SSLV3_ALERT_CERTIFICATE_REVOKED": "says that this client's certificate (ssl_certfile) was revoked",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "does not accept this client's certificate (ssl_certfile), or wants one",
        "SSLV3_ALERT_BAD_CERTIFICATE": "does not accept this client's certificate (ssl_certfile), or wants one",
        "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "cannot use this kind of client certificate (ssl_certfile)",
        "TLSV1_ALERT_ACCESS_DENIED": "does not let in whom this client's certificate (ssl_certfile) is for",
    }
)


class HostRefused(AuthenticationError):
    """One host and this client could not agree on TLS, which says nothing about the other hosts of the cluster."""


def explain_tls_failure(node: object, host: str, error: OSError) -> BrokerConnectionError:
    """The error for a connection on which TLS was not agreed; ``host`` is the name that the certificate had to be for.

    An `AuthenticationError` where trying again will not help.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return HostRefused(f"Broker {node} was not trusted (TLS): {_why_not_trusted(host, error)}.")
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        sentence = _REASONS.get(error.reason or "")
        if sentence is None:
            return BrokerConnectionError(f"TLS with broker {node} failed: {error.reason or error.strerror or error}.")
        end = "" if sentence.endswith("?") else "."
        kind = BrokerConnectionError if sentence is _IS_IT_PLAINTEXT else HostRefused
        return kind(f"Broker {node} {sentence}{end}")
    return BrokerConnectionError(
        f"Broker {node} closed the connection when TLS was to be agreed: is this a listener without TLS "
        f"(security_protocol PLAINTEXT or SASL_PLAINTEXT), or with older versions of TLS (ssl_min_version)?"
    )


def _why_not_trusted(host: str, error: ssl.SSLCertVerificationError) -> str:
    code = error.verify_code
    if code in _HOSTNAME_MISMATCH:
        return (
            f"its certificate is not for {host!r}, the host under which it was asked for; is that what the broker "
            f"advertises, and what its certificate names"
        )
    if code in _UNKNOWN_ISSUER:
        return (
            f"no authority that is trusted here has signed its certificate ({error.verify_message}); give the authority's "
            f"certificate as ssl_cafile"
        )
    if code == _EXPIRED:
        return "its certificate is expired, or the clock of this machine is ahead"
    if code == _NOT_YET_VALID:
        return "its certificate is not valid yet, or the clock of this machine is behind"
    if code == _REVOKED:
        return "its certificate was revoked"
    return f"{error.verify_message}"
