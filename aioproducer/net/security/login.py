"""Logs in on a connection: carries out a `Conversation`'s decisions, with the current credentials."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from aioproducer.config import OAuthToken, ProducerConfig, Secret
from aioproducer.core.cluster import Node
from aioproducer.core.sasl.conversation import Ask, Authenticated, Conversation
from aioproducer.core.sasl.mechanism import Derive, Mechanism
from aioproducer.core.sasl.msk_iam import MskIam
from aioproducer.core.sasl.oauthbearer import OAuthBearer
from aioproducer.core.sasl.plain import Plain
from aioproducer.core.sasl.scram import ALGORITHMS, Scram, salted_password
from aioproducer.errors import AuthenticationError, BrokerConnectionError, ConfigError, KafkaError
from aioproducer.net.connection import Connection, settle
from aioproducer.net.security.blocking import Blocking
from aioproducer.net.security.callbacks import ask, is_utf_8
from aioproducer.net.security.msk_iam import MskSigner
from aioproducer.net.security.tokens import TokenSource
from aioproducer.net.versions import BrokerVersions
from aioproducer.protocol.message import Request
from aioproducer.protocol.messages import SaslHandshakeRequest
from aioproducer.runtime.log import ClientLog

__all__ = ["REVEALING", "Login"]

#: Mechanisms that send something with which the other side could impersonate the client.
REVEALING: Final = frozenset({"PLAIN", "OAUTHBEARER", "AWS_MSK_IAM"})

_NONCE_BYTES: Final = 24
_CALLBACKS_AT_A_TIME: Final = 4
_REMEMBERED: Final = 8
_HANDSHAKE_VERSION: Final = 1  # version 0 is followed by tokens without headers, as before Kafka 1.0


class Login:
    """Logs in for one producer, with one set of credentials at a time."""

    def __init__(self, config: ProducerConfig, random: Random, log: ClientLog) -> None:
        self._config = config
        self._timeout_s = config.request_timeout_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._tokens = TokenSource(config, random, log)
        self._callbacks = Blocking(_CALLBACKS_AT_A_TIME)
        self._derivations = Blocking(1)
        self._kerberos = Blocking(1)
        self._aws: MskSigner | None = None
        self._aws_threads = Blocking(1)
        self._shown: WeakKeyDictionary[Conversation, OAuthToken] = WeakKeyDictionary()
        self._deriving = asyncio.Lock()
        self._salted: dict[Derive, bytes] = {}  # all brokers of a cluster have the same salt for a user

    def refuse_in_the_clear(self, node: Node) -> None:
        """Raise if the login could be read on the way to this broker."""
        mechanism = self._config.sasl_mechanism
        if mechanism in REVEALING and not self._config.sasl_allow_plaintext_secrets:
            raise AuthenticationError(
                f"{mechanism} login refused: the connection to broker {node} is not encrypted, and the credentials could "
                f"be read on the way. Use security_protocol='SASL_SSL', or SCRAM; or set "
                f"sasl_allow_plaintext_secrets=True."
            )

    async def prepare(self, node: Node) -> Conversation:
        """Return a conversation with the current credentials; calls the provider if there is one.

        Raises `AuthenticationError`, and `BrokerConnectionError` if a callback fails. Cancellation: cancels the callback.
        """
        token = await self._tokens.token() if self._config.sasl_mechanism == "OAUTHBEARER" else None
        try:
            conversation = Conversation(await self._mechanism(node, token), node)
        except ConfigError as error:  # a library is missing, for example: waiting would not help
            sentence = str(error)
        else:
            if token is not None:
                self._shown[conversation] = token
            return conversation
        raise AuthenticationError(f"{self._config.sasl_mechanism} login failed: {sentence}")

    async def hold(self, conversation: Conversation, connection: Connection, versions: BrokerVersions) -> float:
        """Hold the conversation; returns in how many seconds to log in again, 0 for never.

        Raises `AuthenticationError` if the broker refuses or does not prove itself, `BrokerConnectionError`,
        `ProtocolError`, `UnsupportedVersion`. Cancellation: the connection cannot be used any more.
        """
        try:
            return await self._hold(conversation, connection, versions)
        except AuthenticationError:
            # Refused credentials are not sent again: the next attempt asks for new ones.
            token = self._shown.get(conversation)
            if token is not None:
                self._tokens.forget(token)
            self._aws = None
            raise

    async def _hold(self, conversation: Conversation, connection: Connection, versions: BrokerVersions) -> float:
        action = conversation.begin()
        while True:
            match action:
                case Ask(request):
                    answer = await self._ask(connection, versions, request)
                    if conversation.blocks:
                        action = await self._kerberos.run(conversation.receive, answer)
                    else:
                        action = conversation.receive(answer)
                case Derive():
                    action = conversation.derived(await self._derive(action))
                case Authenticated(lifetime_ms):
                    return lifetime_ms / 1000

    async def _ask(self, connection: Connection, versions: BrokerVersions, request: Request[Any]) -> Any:
        version = versions.best(type(request), connection.name)
        if isinstance(request, SaslHandshakeRequest):
            version = _HANDSHAKE_VERSION
        done: asyncio.Future[Any] = self._loop.create_future()
        read = request.response_type.decode
        connection.send(request, version, partial(settle, done), self._timeout_s, read=read, is_login=True)
        answer = await done
        if isinstance(answer, KafkaError):
            if connection.hung_up:
                raise BrokerConnectionError(
                    f"Broker {connection.name} closed the connection during the {self._config.sasl_mechanism} login, "
                    f"without a reason; are the credentials right?"
                ) from answer
            raise answer
        return answer

    # -- credentials --------------------------------------------------------------------------------------------------

    async def _mechanism(self, node: Node, token: OAuthToken | None) -> Mechanism:
        name = self._config.sasl_mechanism
        if token is not None:
            return OAuthBearer(token.value, token.extensions)
        if name == "PLAIN":
            return Plain(*await self._credentials())
        if name == "GSSAPI":
            from aioproducer.net.security.gssapi import Gssapi

            return Gssapi(self._config.sasl_kerberos_service_name or "kafka", node.host)
        if name == "AWS_MSK_IAM":
            self._aws = signer = self._aws or MskSigner()
            return MskIam(await self._aws_threads.run(signer.payload, node.host))
        if name is not None and name in ALGORITHMS:
            username, password = await self._credentials()
            nonce = secrets.token_urlsafe(_NONCE_BYTES)
            return Scram(name, username, password, nonce, self._config.sasl_scram_max_iterations)
        raise ConfigError(f"sasl_mechanism={name!r} is not known.")  # the configuration refuses it earlier

    async def _credentials(self) -> tuple[str, Secret]:
        provider = self._config.sasl_credentials_provider
        if provider is None:
            assert self._config.sasl_username is not None
            assert self._config.sasl_password is not None
            return self._config.sasl_username, self._config.sasl_password
        return await ask("sasl_credentials_provider", provider, _user_and_password, self._callbacks)

    async def _derive(self, wanted: Derive) -> bytes:
        async with self._deriving:
            if wanted not in self._salted:
                while len(self._salted) >= _REMEMBERED:
                    del self._salted[next(iter(self._salted))]
                self._salted[wanted] = await self._derivations.run(_derived, wanted)
            return self._salted[wanted]


def _derived(wanted: Derive) -> bytes:
    return salted_password(wanted.algorithm, wanted.password.reveal().encode(), wanted.salt, wanted.iterations)


def _user_and_password(given: object) -> tuple[str, Secret]:
    kind = type(given).__name__
    pair: list[object] = list(cast("Sequence[object]", given)) if isinstance(given, tuple | list) else []
    match pair:
        case [str() as username, (str() | Secret()) as given_password]:
            password = Secret(given_password)
        case _:
            raise ConfigError(
                f"sasl_credentials_provider must return a tuple of two str, user name and password; it returned a value of "
                f"type {kind}."
            )
    if not is_utf_8(username) or not is_utf_8(password.reveal()):
        raise ConfigError(
            "sasl_credentials_provider returned a user name or a password with characters that UTF-8 cannot encode."
        )
    return username, password
