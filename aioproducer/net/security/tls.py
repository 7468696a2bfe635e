"""Creates the SSL context of each new connection, from files that may have changed since the last one.

A certificate is always verified and must be for the host that the broker advertises; TLS is at least 1.2. No option
changes that. Users who need something else pass an `ssl.SSLContext`, and see in their own code what it does.
"""

from __future__ import annotations

import os
import re
import ssl
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

import anyio.to_thread

from aioproducer.config import ProducerConfig
from aioproducer.errors import AuthenticationError
from aioproducer.runtime.log import ClientLog

__all__ = ["TlsContexts", "make_context"]

_CERTIFICATE: Final = re.compile(
    r"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----[A-Za-z0-9+/=\s]*-----END [A-Z0-9 ]*-----"
)

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class TlsContexts:
    """Provides the SSL context of each new connection."""

    def __init__(self, config: ProducerConfig, log: ClientLog) -> None:
        self._config = config
        context = config.ssl_context
        if context is not None and not (context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname):
            log.warning(
                "The ssl_context does not verify the brokers: an attacker could read the records and the login."
            )

    async def fresh(self) -> ssl.SSLContext:
        """Return a context with the current certificates, or the context that the user passed.

        Raises `AuthenticationError` for files and keys that cannot be read. Cancellation: the thread still reads the
        files; its result is discarded.
        """
        if self._config.ssl_context is not None:
            return self._config.ssl_context
        return await anyio.to_thread.run_sync(make_context, self._config, abandon_on_cancel=True)


def make_context(config: ProducerConfig) -> ssl.SSLContext:
    """Create the context that the ``ssl_`` options describe; reads their files.

    Raises `AuthenticationError`, which names the option at fault.
    """
    context = _trusting(config)
    context.minimum_version = _VERSIONS[config.ssl_min_version]
    if config.ssl_cipher_suites:
        _restrict(context, config.ssl_cipher_suites)
    _identify(context, config)
    return context


def _trusting(config: ProducerConfig) -> ssl.SSLContext:
    """Create a context that trusts only the given authorities, or the system's if none are given."""
    text = config.ssl_truststore_certificates
    try:
        return ssl.create_default_context(
            cafile=config.ssl_cafile, cadata=None if text is None else _certificates(text)
        )
    except (OSError, ValueError) as error:
        named = "ssl_truststore_certificates" if config.ssl_cafile is None else f"ssl_cafile={config.ssl_cafile!r}"
        raise _unreadable(f"{named} cannot be read as certificates in PEM", error) from error


def _certificates(text: str) -> str:
    """Return only the certificates (ValueError if none): bundles have names between them, and Python accepts only ASCII."""
    found = _CERTIFICATE.findall(text)
    if not found:
        raise ValueError("it contains no certificate")
    return "\n".join(found)


def _restrict(context: ssl.SSLContext, suites: tuple[str, ...]) -> None:
    try:
        # Suites without authentication would skip the certificate, and those without encryption protect nothing.
        context.set_ciphers(":".join((*suites, "!aNULL", "!eNULL")))
    except ssl.SSLError as error:
        raise _unreadable(
            f"ssl_cipher_suites={':'.join(suites)!r} names no cipher that OpenSSL supports", error
        ) from error


def _identify(context: ssl.SSLContext, config: ProducerConfig) -> None:
    """Load the client's own certificate, if it has one (mutual TLS)."""

    def return_password() -> str:
        # Always given: without it OpenSSL would ask at the terminal, and wait.
        return "" if config.ssl_key_password is None else config.ssl_key_password.reveal()

    if config.ssl_certfile is not None:
        try:
            context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile, return_password)
        except (OSError, ValueError) as error:
            files = " and ".join(
                f"{name}={value!r}"
                for name, value in (("ssl_certfile", config.ssl_certfile), ("ssl_keyfile", config.ssl_keyfile))
                if value is not None
            )
            raise _unreadable(
                f"{files} cannot be used as certificate and key; is ssl_key_password right?", error
            ) from (error)
    elif config.ssl_keystore_key is not None:
        refused: OSError | ValueError | None = None
        try:
            with _as_file(f"{config.ssl_keystore_key.reveal()}\n{config.ssl_keystore_certificate_chain}\n") as path:
                context.load_cert_chain(path, password=return_password)
        except (OSError, ValueError) as error:
            refused = error
        if refused is not None:
            # Raised here, without cause or context: their tracebacks would hold the key in a local variable.
            raise _unreadable(
                "ssl_keystore_key and ssl_keystore_certificate_chain cannot be used as key and certificate; is "
                "ssl_key_password right?",
                refused,
            )


def _unreadable(what: str, error: Exception) -> AuthenticationError:
    why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return AuthenticationError(f"{what}: {why}.")


@contextmanager
def _as_file(text: str) -> Generator[str]:
    """Yield a path with the text for OpenSSL, which reads keys only from files; in memory if the system can."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        memory = os.memfd_create("aioproducer")
        try:
            os.write(memory, text.encode())
            yield f"/proc/self/fd/{memory}"
        finally:
            os.close(memory)
        return
    handle, path = tempfile.mkstemp(prefix="aioproducer-")  # readable by its owner only
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        yield path
    finally:
        with suppress(OSError):
            os.unlink(path)
