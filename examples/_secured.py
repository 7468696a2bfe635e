"""The configuration that a vendor's console prints: from the file that an environment variable names, or with a stand-in."""

from __future__ import annotations

import atexit
import os

from aioproducer import ProducerConfig
from aioproducer.testing import FakeBroker, Logins
from aioproducer.testing.certificates import CertificateAuthority


def config_of(variable: str, printed: str, logins: Logins | None) -> ProducerConfig:
    """The configuration in the file; otherwise ``printed``, with a fake broker that requires the same login over TLS."""
    file = os.environ.get(variable)
    if file:
        return ProducerConfig.from_properties(file)
    authority = CertificateAuthority()
    broker = FakeBroker(tls=authority.server_context(client_authority=None if logins else authority), logins=logins)
    broker.start()
    atexit.register(broker.close)
    print(f"({variable} is not set: a fake broker in this process requires the same login)")
    changes = {"bootstrap_servers": broker.bootstrap_servers, "ssl_truststore_certificates": authority.pem}
    if logins is None:
        client = authority.issue("client", common_name="client")
        changes |= {"ssl_keystore_certificate_chain": client.certificate, "ssl_keystore_key": client.key}
    return ProducerConfig.from_properties(printed, **changes)  # type: ignore[arg-type]
