"""One authority for all tests: keys take a moment to make."""

from __future__ import annotations

import pytest

from aioproducer.testing.certificates import CertificateAuthority


@pytest.fixture(scope="session")
def authority() -> CertificateAuthority:
    """The authority that signs the certificates of brokers and clients."""
    return CertificateAuthority()
