"""Visits the address of one broker in stages: name, connection, TLS, API versions, login."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final, TypeAlias, TypeVar, cast

from aioproducer.cli.doctor import causes
from aioproducer.cli.doctor.probes import TlsFacts, accepts, is_web_server, shake_hands, spoken_at
from aioproducer.cli.doctor.report import Finding, good
from aioproducer.config import ProducerConfig
from aioproducer.core.cluster import Node
from aioproducer.errors import AuthenticationError, BrokerConnectionError, KafkaError
from aioproducer.net.addresses import Address, Resolver
from aioproducer.net.connection import Answer, settle
from aioproducer.net.connector import Connector, Established
from aioproducer.net.security.tls import TlsContexts
from aioproducer.net.security.tls_failures import HostRefused, explain_tls_failure
from aioproducer.protocol.message import Request, Response
from aioproducer.protocol.messages import SaslHandshakeRequest, SaslHandshakeResponse
from aioproducer.runtime.log import ClientLog

__all__ = ["Stage", "Visit", "Visitor", "ask"]

#: The name of the client in the brokers' logs.
_CLIENT_ID: Final = "aioproducer-doctor"
#: The longest that a guess about an unknown peer may take.
_GUESS_S: Final = 2.0
#: A name that is not a mechanism, so that the broker answers with those that it offers.
_NO_MECHANISM: Final = "NONE"

_ResponseT = TypeVar("_ResponseT", bound=Response)


@dataclass(slots=True)
class Visit:
    """One address, with the facts of the stages so far; a bootstrap server has a negative node id."""

    node: Node
    addresses: list[Address] = field(default_factory=list[Address])
    reached: Address | None = None
    hello: Established | None = None  # before the login
    session: Established | None = None  # after it


#: Returns the finding of one stage; the visit ends at a fault.
Stage: TypeAlias = Callable[[Visit], Awaitable[Finding]]


async def ask(
    established: Established, request: Request[_ResponseT], limit_s: float, highest: int | None = None
) -> _ResponseT:
    """Send the request in the highest common version, and return the response; raises KafkaError."""
    connection = established.connection
    version = established.versions.best(type(request), connection.name, highest)
    done: asyncio.Future[Answer[_ResponseT]] = asyncio.get_running_loop().create_future()
    connection.send(request, version, partial(settle, done), limit_s, read=request.response_type.decode)
    answer = await done
    if isinstance(answer, KafkaError):
        raise answer
    return cast("_ResponseT", answer)


class Visitor:
    """Makes the stages of visits with one configuration; each within ``limit_s`` seconds."""

    def __init__(self, config: ProducerConfig, limit_s: float) -> None:
        self._config = config
        self._limit_s = limit_s
        log = ClientLog(_CLIENT_ID)
        self._resolver = Resolver()
        self._tls = TlsContexts(config, log) if config.uses_tls else None
        self._before_login = Connector(_without_login(config), _CLIENT_ID, Random(), log=log)
        self._complete = Connector(config, _CLIENT_ID, Random(), log=log)

    @property
    def stages(self) -> list[Stage]:
        """All stages, in order. Behind a proxy, names and connections are its own matter."""
        if self._config.proxy is not None:
            return [self.greet, self.log_in]
        tls = [] if self._tls is None else [self.negotiate]
        return [self.resolve, self.connect, *tls, self.greet, self.log_in]

    async def close(self) -> None:
        """End all connections."""
        for connector in (self._before_login, self._complete):
            await connector.close(BrokerConnectionError("The examination is over."))

    async def resolve(self, visit: Visit) -> Finding:
        """Find the addresses of the host."""
        try:
            async with asyncio.timeout(self._limit_s):
                visit.addresses = await self._resolver.resolve(visit.node.host, visit.node.port)
        except TimeoutError:
            return causes.unresolved(visit.node, f"no answer within {self._limit_s:g} s")
        except BrokerConnectionError as error:
            reason = getattr(error.__cause__, "strerror", None) or error.__cause__ or error
            return causes.unresolved(visit.node, str(reason))
        found = ", ".join(each.host for each in visit.addresses)
        return good(f"{visit.node.host} is {found}" if found != visit.node.host else f"{found} is an address")

    async def connect(self, visit: Visit) -> Finding:
        """Try all addresses at once; the first that accepts connections is used for the following stages."""
        errors = await asyncio.gather(*(accepts(each, self._limit_s) for each in visit.addresses))
        tried = list(zip(visit.addresses, errors, strict=True))
        visit.reached = next((address for address, error in tried if error is None), None)
        if visit.reached is None:
            return causes.unreached(visit.node, [error for error in errors if error is not None], self._limit_s)
        refused = ", ".join(address.host for address, error in tried if error is not None)
        return good(f"{visit.reached} accepts connections" + (f" ({refused} does not)" if refused else ""))

    async def negotiate(self, visit: Visit) -> Finding:
        """Negotiate TLS and look at the certificate."""
        assert self._tls is not None
        assert visit.reached is not None
        host = visit.node.host.rstrip(".")
        try:
            context = await self._tls.fresh()
        except AuthenticationError as error:
            return causes.unreadable_tls(str(error))
        try:
            async with asyncio.timeout(self._limit_s):
                facts = await shake_hands(visit.reached, context, host)
        except TimeoutError:
            return await self._explain_silence(visit, "TLS handshake")
        except OSError as error:
            return await self._explain_tls(visit, error)
        except ValueError:  # a name that no certificate can have
            return causes.not_trusted(visit.node, ValueError(), f"{host!r} is not a host name.")
        return _trusted(visit.node, facts)

    async def _explain_tls(self, visit: Visit, error: OSError) -> Finding:
        if not isinstance(error, ssl.SSLCertVerificationError) and (stranger := await self._stranger(visit)):
            return stranger
        return causes.not_trusted(visit.node, error, str(explain_tls_failure(visit.node, visit.node.host, error)))

    @property
    def _is_anonymous(self) -> bool:
        """Whether brokers see no certificate of this client, though TLS is used."""
        config = self._config
        return config.uses_tls and config.ssl_certfile is None and config.ssl_keystore_key is None

    async def _explain_silence(self, visit: Visit, during: str) -> Finding:
        assert visit.reached is not None
        if await is_web_server(visit.reached, min(self._limit_s, _GUESS_S)):
            found = causes.not_kafka(visit.node, causes.Speech.HTTP, uses_tls=False, uses_sasl=False)
        else:
            found = None
        return found or causes.silent(visit.node, during, self._limit_s)

    async def _stranger(self, visit: Visit) -> Finding | None:
        assert visit.reached is not None
        limit_s = min(self._limit_s, _GUESS_S)
        # First, since it answers at once if it is one; what follows may wait for the limit there.
        is_web = await is_web_server(visit.reached, limit_s)
        spoken = causes.Speech.HTTP if is_web else await spoken_at(visit.reached, limit_s)
        uses_tls, uses_sasl = self._config.uses_tls, self._config.uses_sasl
        return causes.not_kafka(visit.node, spoken, uses_tls=uses_tls, uses_sasl=uses_sasl)

    async def greet(self, visit: Visit) -> Finding:
        """Ask for the API versions, before any login."""
        try:
            visit.hello = await self._before_login.connect(visit.node, 0, self._limit_s, _ignore)
        except HostRefused as error:
            if self._is_anonymous:
                return causes.no_answer(visit.node, str(error), anonymous=True)
            return causes.not_trusted(visit.node, error, str(error))
        except KafkaError as error:
            if self._config.proxy is not None:  # no guesses: a direct connection would find something else
                return causes.not_through_proxy(visit.node, str(error))
            if isinstance(error.__cause__, TimeoutError):
                return await self._explain_silence(visit, "ApiVersions")
            stranger = await self._stranger(visit)
            return stranger or causes.no_answer(visit.node, str(error), anonymous=self._is_anonymous)
        return good(f"{visit.node} answers ApiVersions")

    async def log_in(self, visit: Visit) -> Finding:
        """Log in, if that is configured, or find out that it would be required."""
        assert visit.hello is not None
        offered = await self._offered(visit.hello)
        mechanism, uses_tls = self._config.sasl_mechanism, self._config.uses_tls
        if not self._config.uses_sasl and offered:
            return causes.login_required(visit.node, offered, uses_tls=uses_tls)
        try:
            visit.session = await self._complete.connect(visit.node, 0, self._limit_s, _ignore)
        except KafkaError as error:
            if isinstance(error.__cause__, TimeoutError):
                return causes.silent(visit.node, "login", self._limit_s)
            return causes.refused_login(visit.node, mechanism or "no login", offered, str(error), uses_tls=uses_tls)
        if not self._config.uses_sasl:
            return good(f"{visit.node} requires no login")
        return good(f"{visit.node} accepts the {mechanism} login")

    async def _offered(self, hello: Established) -> list[str] | None:
        """The mechanisms that the broker offers; None if it does not answer that."""
        request = SaslHandshakeRequest(mechanism=self._config.sasl_mechanism or _NO_MECHANISM)
        connection = hello.connection
        done: asyncio.Future[Answer[SaslHandshakeResponse]] = asyncio.get_running_loop().create_future()
        connection.send(request, 1, partial(settle, done), self._limit_s, read=SaslHandshakeResponse.decode)
        answer = await done
        return list(answer.mechanisms) if isinstance(answer, SaslHandshakeResponse) else None

    async def is_misled(self, visit: Visit, cluster_id: str) -> bool:
        """Whether the broker itself says that it is not this node of this cluster (KIP-1242, Kafka 4.4)."""
        from aioproducer.errors import BrokerError
        from aioproducer.protocol.error_codes import ErrorCode

        try:
            await self._before_login.connect(visit.node, 0, self._limit_s, _ignore, cluster_id)
        except BrokerError as error:
            return error.code == ErrorCode.REBOOTSTRAP_REQUIRED
        except KafkaError:
            pass
        return False


def _trusted(node: Node, facts: TlsFacts) -> Finding:
    ends = f"a certificate for this host by {facts.issuer} that ends in {facts.days:.0f} days"
    sentence = f"{node} uses {facts.version}, with {ends}"
    return causes.certificate_days(node, facts.days, sentence) or good(sentence)


def _without_login(config: ProducerConfig) -> ProducerConfig:
    """The configuration for a connection before the login."""
    from aioproducer.config import OPTIONS

    kept: dict[str, Any] = {
        name: getattr(config, name)
        for name in OPTIONS
        if (name.startswith("ssl_") or name == "proxy") and config.is_explicit(name)
    }
    kept["security_protocol"] = "SSL" if config.uses_tls else "PLAINTEXT"
    return ProducerConfig.create(config.bootstrap_servers, **kept)


def _ignore(*_: object) -> None:
    pass
