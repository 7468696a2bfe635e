"""Certificates for tests: an authority, and certificates that it signs. Needs the extra ``testing``."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CertificateAuthority", "Identity"]


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate with its chain, and its key, both as PEM text; the key in PKCS#8, as Java requires."""

    certificate: str
    key: str = field(repr=False)

    @property
    def pem(self) -> str:
        """Key and certificate in one text, for ``ssl.keystore.location``."""
        return self.key + self.certificate

    def write(self, path: Path) -> str:
        """Write key and certificate into one file; returns its path."""
        path.write_text(self.pem)
        return str(path)


class CertificateAuthority:
    """Signs certificates of hosts and clients, which are trusted by those that trust ``pem``.

    ::

        authority = CertificateAuthority()
        with FakeBroker(tls=authority.server_context()) as broker:
            producer = Producer(
                broker.bootstrap_servers, security_protocol="SSL", ssl_truststore_certificates=authority.pem
            )
    """

    def __init__(self) -> None:
        import trustme

        self._authority = trustme.CA()

    @property
    def pem(self) -> str:
        """The authority's own certificate."""
        return self._authority.cert_pem.bytes().decode()

    def write(self, path: Path) -> str:
        """Write the authority's certificate into a file; returns its path."""
        path.write_text(self.pem)
        return str(path)

    def issue(
        self, *names: str, common_name: str | None = None, expired: bool = False, early: bool = False
    ) -> Identity:
        """A certificate for these hosts, addresses or users: valid now, expired yesterday, or valid from tomorrow."""
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            load_pem_private_key,
        )

        now = datetime.now(UTC)
        days = (-3, -1) if expired else (1, 30) if early else (-1, 30)
        leaf = self._authority.issue_cert(
            *names,
            common_name=common_name,
            not_before=now + timedelta(days=days[0]),
            not_after=now + timedelta(days=days[1]),
        )
        key = load_pem_private_key(leaf.private_key_pem.bytes(), password=None)
        return Identity(
            "".join(each.bytes().decode() for each in leaf.cert_chain_pems),
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
        )

    def revocations(self, *revoked: Identity) -> str:
        """The revocation list of these certificates, in PEM, for a context with ``ssl.VERIFY_CRL_CHECK_LEAF``."""
        from cryptography import x509
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

        authority = x509.load_pem_x509_certificate(self.pem.encode())
        key: Any = load_pem_private_key(self._authority.private_key_pem.bytes(), password=None)
        now = datetime.now(UTC)
        crl = x509.CertificateRevocationListBuilder().issuer_name(authority.subject)
        crl = crl.last_update(now - timedelta(days=1)).next_update(now + timedelta(days=30))
        for each in revoked:
            serial = x509.load_pem_x509_certificate(each.certificate.encode()).serial_number
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now).build()
            crl = crl.add_revoked_certificate(entry)
        return crl.sign(key, SHA256()).public_bytes(Encoding.PEM).decode()

    def server_context(
        self,
        *names: str,
        expired: bool = False,
        early: bool = False,
        client_authority: CertificateAuthority | None = None,
    ) -> ssl.SSLContext:
        """The context of a server with these names (none: this machine's).

        With a ``client_authority`` it accepts only clients with a certificate from that authority.
        """
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.identify(context, *(names or ("localhost", "127.0.0.1")), expired=expired, early=early)
        if client_authority is not None:
            context.load_verify_locations(cadata=client_authority.pem)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def identify(self, context: ssl.SSLContext, *names: str, expired: bool = False, early: bool = False) -> None:
        """Give the context a new certificate for these names, used by new connections."""
        import tempfile
        from pathlib import Path

        with tempfile.TemporaryDirectory(prefix="aioproducer-tls-") as directory:
            identity = self.issue(*names, expired=expired, early=early)
            context.load_cert_chain(identity.write(Path(directory) / "server.pem"))
