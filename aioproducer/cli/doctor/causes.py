"""The meaning of a connection that fails: what is at fault, and what to change; decides only."""

from __future__ import annotations

import errno
import ssl
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from aioproducer.cli.doctor.report import Finding, counted, fault, warning
from aioproducer.core.cluster import Node

__all__ = [
    "Speech",
    "certificate_days",
    "login_required",
    "no_answer",
    "not_kafka",
    "not_trusted",
    "other_cluster",
    "other_node",
    "refused_login",
    "silent",
    "speech",
    "unreached",
    "unreadable_tls",
    "unresolved",
]


class Speech(Enum):
    """The protocol that a port seems to speak."""

    KAFKA = "Kafka"
    TLS = "TLS"
    HTTP = "HTTP"
    SSH = "SSH"
    UNKNOWN = "unknown"


def speech(first_bytes: bytes) -> Speech:
    """The protocol of an answer to ApiVersions with correlation id 1, sent without TLS."""
    if first_bytes[:1] in (b"\x15", b"\x16") and first_bytes[1:2] == b"\x03":
        return Speech.TLS
    if first_bytes.startswith(b"HTTP"):
        return Speech.HTTP
    if first_bytes.startswith(b"SSH-"):
        return Speech.SSH
    return Speech.KAFKA if first_bytes[4:8] == b"\0\0\0\1" else Speech.UNKNOWN


def unresolved(node: Node, reason: str) -> Finding:
    """The name of a host has no address."""
    if node.id < 0:
        return fault(
            f"{node.host} does not resolve ({reason})",
            f"No name service that this machine uses knows the host {node.host!r}.",
            "Correct the host in bootstrap_servers, or add it to DNS or to the hosts file of this machine.",
        )
    return fault(
        f"Broker {node.id} advertises {node.host}:{node.port}, and {node.host} does not resolve ({reason})",
        "A producer connects to the host that a broker advertises, and this machine does not know that host.",
        f"Set advertised.listeners of broker {node.id} to a name that its clients can resolve, or add {node.host} to DNS "
        "or to the hosts file of this machine.",
    )


_UNREACHABLE: Final = frozenset((errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL))


def unreached(node: Node, errors: Sequence[OSError], limit_s: float) -> Finding:
    """No address of the host accepts connections; one error for each address."""
    error = next((each for each in errors if isinstance(each, TimeoutError)), errors[-1])
    if isinstance(error, TimeoutError):
        what = f"did not answer within {limit_s:g} s"
        cause = "A firewall drops the packets, or the host is down or in another network."
    elif isinstance(error, ConnectionRefusedError):
        what = "refused the connection"
        cause = f"The host can be reached, but nothing listens on port {node.port}."
    elif error.errno in _UNREACHABLE:
        what = "is unreachable"
        cause = f"This machine has no route to the host ({error.strerror})."
    else:
        what = "cannot be connected"
        cause = f"{error.strerror or error}."
    return fault(f"{node} {what}" if node.id < 0 else f"Broker {node} {what}", cause, _other_address(node))


def _other_address(node: Node) -> str:
    if node.id < 0:
        return (
            f"Correct {node} in bootstrap_servers; or start the broker, and set its option listeners to a reachable address "
            f"with port {node.port}."
        )
    return (
        f"Set advertised.listeners of broker {node.id} to an address that its clients can reach (now {node.host}:"
        f"{node.port}), or open that port."
    )


def silent(node: Node, during: str, limit_s: float) -> Finding:
    """The peer accepted the connection, and then said nothing."""
    return fault(
        f"{_named(node)} accepted the connection and then said nothing within {limit_s:g} s ({during})",
        "The broker hangs or is overloaded, a proxy in between has no broker behind it, or this is not Kafka.",
        "Look at the broker's log and load, and at any proxy or load balancer; a longer --timeout may help if it is slow.",
    )


def not_kafka(node: Node, spoken: Speech, *, uses_tls: bool, uses_sasl: bool) -> Finding | None:
    """The port speaks another protocol than the configured one; None: it does not."""
    where = _named(node)
    if spoken is Speech.TLS and not uses_tls:
        return fault(
            f"{where} is a port with TLS, and this configuration does not use TLS",
            f"security_protocol is {'SASL_PLAINTEXT' if uses_sasl else 'PLAINTEXT'}, but the listener expects TLS.",
            f"Set security_protocol to {'SASL_SSL' if uses_sasl else 'SSL'} (or to SASL_SSL if the listener requires a "
            "login), or use the port of a listener without TLS.",
        )
    if spoken is Speech.KAFKA and uses_tls:
        return fault(
            f"{where} is a Kafka port without TLS, and this configuration uses TLS",
            f"security_protocol is {'SASL_SSL' if uses_sasl else 'SSL'}, but the listener speaks plaintext "
            "(listener.security.protocol.map).",
            f"Set security_protocol to {'SASL_PLAINTEXT' if uses_sasl else 'PLAINTEXT'}, or use the port of a listener "
            "with TLS.",
        )
    if spoken is Speech.HTTP:
        return fault(
            f"{where} is a web server, not Kafka",
            "The port answers in HTTP: it belongs to a proxy, a REST API or a user interface.",
            "Use the port of a Kafka listener, by default 9092.",
        )
    if spoken is Speech.SSH:
        return fault(
            f"{where} is an SSH server, not Kafka",
            "The port answers in SSH.",
            "Use the port of a Kafka listener, by default 9092.",
        )
    return None


def no_answer(node: Node, why: str, *, anonymous: bool) -> Finding:
    """ApiVersions was not answered, for another reason; ``anonymous``: in TLS, without a client's certificate."""
    if anonymous:
        return fault(
            f"{_named(node)} agreed on TLS and then refused this client",
            "The broker probably requires a certificate of the client (ssl.client.auth=required), and this configuration "
            f"has none. {why}",
            "Set ssl_certfile and ssl_keyfile; if the broker requires no certificate, check that the port is Kafka's.",
        )
    return fault(
        f"{_named(node)} did not answer as a Kafka broker does",
        why,
        "Check that this is the port of a broker's listener (not of a KRaft controller), and security_protocol.",
    )


def not_through_proxy(node: Node, why: str) -> Finding:
    """No answer to ApiVersions came through the proxy."""
    return fault(
        f"{_named(node)} did not answer through the proxy",
        why,
        "Check the option proxy, whether the proxy may connect to this address, that this is the port of a broker's "
        "listener, and security_protocol. Without the option proxy, doctor examines each stage of the connection.",
    )


#: OpenSSL's X509_V_ERR_ codes: the sentence after the name, and the change.
_CERTIFICATES: Final[Mapping[int, tuple[str, str]]] = {
    9: ("has a certificate that is not valid yet", "Correct the clock of this machine, or replace the certificate."),
    10: ("has an expired certificate", "Renew the broker's certificate (ssl.keystore.location), or correct the clock."),
    23: ("has a revoked certificate", "Replace the broker's certificate (ssl.keystore.location)."),
    **dict.fromkeys(
        (2, 18, 19, 20, 21),
        (
            "has a certificate of an unknown authority",
            "Pass the certificate of the authority that signed it as ssl_cafile (PEM).",
        ),
    ),
    **dict.fromkeys(
        (62, 64),
        (
            "has a certificate for other host names",
            "Use a host name that is in the certificate, in bootstrap_servers and in advertised.listeners; or issue the "
            "broker a certificate that names this host.",
        ),
    ),
}


def not_trusted(node: Node, error: Exception, why: str) -> Finding:
    """TLS failed; ``why`` is the client's message about it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        found = _CERTIFICATES.get(error.verify_code)
        if found is not None:
            return fault(f"{_named(node)} {found[0]}", why, found[1])
    return fault(
        f"{_named(node)} could not agree on TLS with this client",
        why,
        "Compare the options ssl_cafile, ssl_certfile and ssl_min_version with the broker's ssl.client.auth and "
        "ssl.enabled.protocols.",
    )


def unreadable_tls(why: str) -> Finding:
    """The client's own TLS files cannot be used."""
    return fault("The TLS options cannot be used", why, "Correct the option that the cause names.")


_SOON_DAYS: Final = 14


def certificate_days(node: Node, days: float, described: str) -> Finding | None:
    """A warning if the certificate expires soon."""
    if days >= _SOON_DAYS:
        return None
    return warning(
        f"{described}, which is soon",
        f"The certificate of {node} ends in {counted(round(days), 'day')}.",
        "Renew the certificate.",
    )


def refused_login(node: Node, mechanism: str, offered: Sequence[str] | None, why: str, *, uses_tls: bool) -> Finding:
    """The login failed; ``offered`` are the mechanisms that the broker listed, None if it did not."""
    without = "SSL" if uses_tls else "PLAINTEXT"
    if offered is not None and not offered:
        return fault(
            f"{_named(node)} does not expect a login at this port",
            f"This configuration logs in with {mechanism}, but the listener has no SASL.",
            f"Set security_protocol to {without}, or use the port of a listener with SASL.",
        )
    if offered is not None and mechanism not in offered:
        names = ", ".join(offered)
        return fault(
            f"{_named(node)} does not offer the login mechanism {mechanism}; it offers {names}",
            f"sasl.enabled.mechanisms of this listener does not contain {mechanism}.",
            f"Set sasl_mechanism to one of {names}, or add {mechanism} to sasl.enabled.mechanisms of the brokers.",
        )
    users = "the user name and password (sasl_username, sasl_password)"
    change = {
        "OAUTHBEARER": "Check the token's issuer, audience, scope and expiry.",
        "GSSAPI": "Check the ticket (klist).",
        "AWS_MSK_IAM": "Check the AWS keys and region of this machine, and the rights of their role.",
    }
    secret = change.get(mechanism, f"Check {users}, and that the user exists on the brokers for {mechanism}.")
    if "is not encrypted" in why:
        secret = "Set security_protocol to SASL_SSL, or use a SCRAM mechanism."
    return fault(f"The {mechanism} login to {_named(node)[0].lower()}{_named(node)[1:]} failed", why, secret)


def login_required(node: Node, offered: Sequence[str], *, uses_tls: bool) -> Finding:
    """The listener requires a login, and none is configured."""
    return fault(
        f"{_named(node)} requires a login, and this configuration has none",
        f"The listener uses SASL ({', '.join(offered)}).",
        f"Set security_protocol to {'SASL_SSL' if uses_tls else 'SASL_PLAINTEXT'}, and sasl_mechanism, sasl_username and "
        "sasl_password.",
    )


def other_cluster(node: Node, expected: str | None, found: str | None) -> Finding:
    """The advertised address belongs to another cluster."""
    return fault(
        f"The address that broker {node.id} advertises, {node.host}:{node.port}, reaches another cluster: {found} instead "
        f"of {expected}",
        "From this machine, the advertised name or port leads to a broker of another cluster.",
        f"Set advertised.listeners of broker {node.id} to an address that only leads to it; check DNS, hosts files, port "
        "mappings and tunnels on this machine.",
    )


def other_node(node: Node) -> Finding:
    """The advertised address belongs to another broker of the cluster."""
    return fault(
        f"The address that broker {node.id} advertises, {node.host}:{node.port}, reaches another broker of the cluster",
        "Several brokers advertise the same address, or a load balancer is in between.",
        f"Set advertised.listeners of broker {node.id} to an address that only leads to it.",
    )


def _named(node: Node) -> str:
    return str(node) if node.id < 0 else f"Broker {node}"
