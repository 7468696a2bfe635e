"""The SSL context of each new connection, from files that may have changed since the last one.

What is promised: a certificate is always verified, and must be for the host that the broker advertises; TLS is 1.2 at
least. No option changes that. Who needs something else passes an `ssl.SSLContext`, and sees in their own code what it does.
"""

from __future__ import annotations

import logging
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

__all__ = ["TlsContexts", "make_context"]

logger = logging.getLogger("aioproducer")

_CERTIFICATE: Final = re.compile(
    r"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----[A-Za-z0-9+/=\s]*-----END [A-Z0-9 ]*-----"
)

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class TlsContexts:
    """Gives a context to each connection that is made."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        context = config.ssl_context
        if context is not None and not (context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname):
            logger.warning(
                "The ssl_context does not verify who the brokers are: anybody may read the records and the login."
            )

    async def fresh(self) -> ssl.SSLContext:
        """A context with the certificates as they are now; the one that the user passed, where they passed one.

        Raises `AuthenticationError` for files and keys that cannot be read. Cancellation: the files are read all the same,
        in a thread, and nobody waits for it.
        """
        if self._config.ssl_context is not None:
            return self._config.ssl_context
        return await anyio.to_thread.run_sync(make_context, self._config, abandon_on_cancel=True)


def make_context(config: ProducerConfig) -> ssl.SSLContext:
    """The context that the ``ssl_`` options describe; reads their files.

    Raises `AuthenticationError` that names the option to look at.
    """
    context = _trusting(config)
    context.minimum_version = _VERSIONS[config.ssl_min_version]
    if config.ssl_cipher_suites:
        _restrict(context, config.ssl_cipher_suites)
    _identify(context, config)
    return context


def _trusting(config: ProducerConfig) -> ssl.SSLContext:
    """A context that trusts the authorities that were named and nobody else; the system's where none were."""
    text = config.ssl_truststore_certificates
    try:
        return ssl.create_default_context(
            cafile=config.ssl_cafile, cadata=None if text is None else _certificates(text)
        )
    except (OSError, ValueError) as error:
        named = "ssl_truststore_certificates" if config.ssl_cafile is None else f"ssl_cafile={config.ssl_cafile!r}"
        raise _unreadable(f"{named} cannot be read as certificates in PEM", error) from error


def _certificates(text: str) -> str:
    """The certificates without what stands between them: bundles have names there, and Python takes ASCII only."""
    found = _CERTIFICATE.findall(text)
    if not found:
        raise ValueError("no certificate is in it")
    return "\n".join(found)


def _restrict(context: ssl.SSLContext, suites: tuple[str, ...]) -> None:
    try:
        # Suites without authentication need no certificate, whatever is verified; those without encryption are no TLS.
        context.set_ciphers(":".join((*suites, "!aNULL", "!eNULL")))
    except ssl.SSLError as error:
        raise _unreadable(f"ssl_cipher_suites={':'.join(suites)!r} names no cipher that OpenSSL has", error) from error


def _identify(context: ssl.SSLContext, config: ProducerConfig) -> None:
    """Give the client's own certificate, where it has one (mutual TLS)."""

    def tell_password() -> str:
        # Always given: without it OpenSSL would ask at the terminal, and wait.
        return "" if config.ssl_key_password is None else config.ssl_key_password.reveal()

    if config.ssl_certfile is not None:
        try:
            context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile, tell_password)
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
                context.load_cert_chain(path, password=tell_password)
        except (OSError, ValueError) as error:
            refused = error
        if refused is not None:
            # Raised here, with neither cause nor context: their tracebacks would hold the key in a local variable.
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
    """A path at which OpenSSL, which reads keys from files only, finds the text; in memory where the system can do that."""
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        memory = os.memfd_create("aioproducer")
        try:
            os.write(memory, text.encode())
            yield f"/proc/self/fd/{memory}"
        finally:
            os.close(memory)
        return
    handle, path = tempfile.mkstemp(prefix="aioproducer-")  # readable for its owner only
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        yield path
    finally:
        with suppress(OSError):
            os.unlink(path)
