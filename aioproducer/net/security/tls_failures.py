"""The message for a failed TLS handshake: what is wrong with the certificate, or what answered instead."""

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

#: The meaning of OpenSSL's reasons, for those that concern the configuration of either side.
_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "WRONG_VERSION_NUMBER": _IS_IT_PLAINTEXT,
        "HTTP_REQUEST": _IS_IT_PLAINTEXT,
        "UNKNOWN_PROTOCOL": _IS_IT_PLAINTEXT,
        "PACKET_LENGTH_TOO_LONG": _IS_IT_PLAINTEXT,
        "RECORD_LAYER_FAILURE": _IS_IT_PLAINTEXT,
        "UNSUPPORTED_PROTOCOL": "speaks only TLS versions older than ssl_min_version",
        "TLSV1_ALERT_PROTOCOL_VERSION": "refused the TLS versions that ssl_min_version allows",
        "SSLV3_ALERT_HANDSHAKE_FAILURE": (
            "could not agree on TLS; does it require a client certificate (ssl_certfile), or other ssl_cipher_suites?"
        ),
        "TLSV13_ALERT_CERTIFICATE_REQUIRED": "requires a client certificate; set ssl_certfile and ssl_keyfile",
        "TLSV1_ALERT_UNKNOWN_CA": "does not trust the authority that signed this client's certificate (ssl_certfile)",
        "SSLV3_ALERT_CERTIFICATE_EXPIRED": "rejected this client's certificate (ssl_certfile) as expired",
        "SSLV3_ALERT_CERTIFICATE_REVOKED": "rejected this client's certificate (ssl_certfile) as revoked",
        "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "does not accept this client's certificate (ssl_certfile), or requires one",
        "SSLV3_ALERT_BAD_CERTIFICATE": "does not accept this client's certificate (ssl_certfile), or requires one",
        "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "cannot use this kind of client certificate (ssl_certfile)",
        "TLSV1_ALERT_ACCESS_DENIED": "denies access to the subject of this client's certificate (ssl_certfile)",
    }
)


class HostRefused(AuthenticationError):
    """TLS with one host failed; this says nothing about the other hosts of the cluster."""


def explain_tls_failure(node: object, host: str, error: OSError) -> BrokerConnectionError:
    """Return the error for a failed TLS handshake; the certificate had to be for ``host``.

    It is an `AuthenticationError` if trying again cannot help.
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
        f"Broker {node} closed the connection during the TLS handshake: is this a listener without TLS "
        f"(security_protocol PLAINTEXT or SASL_PLAINTEXT), or with older versions of TLS (ssl_min_version)?"
    )


def _why_not_trusted(host: str, error: ssl.SSLCertVerificationError) -> str:
    code = error.verify_code
    if code in _HOSTNAME_MISMATCH:
        return (
            f"its certificate is not for {host!r}, the host to which this client connected; check that the broker "
            "advertises the right host, and that its certificate names it"
        )
    if code in _UNKNOWN_ISSUER:
        return (
            f"no trusted authority has signed its certificate ({error.verify_message}); pass the authority's "
            f"certificate as ssl_cafile"
        )
    if code == _EXPIRED:
        return "its certificate is expired, or the clock of this machine is ahead"
    if code == _NOT_YET_VALID:
        return "its certificate is not valid yet, or the clock of this machine is behind"
    if code == _REVOKED:
        return "its certificate was revoked"
    return f"{error.verify_message}"
