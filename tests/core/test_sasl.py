"""The login as a table: every path through it, what brokers may not say, and bytes that are nothing at all."""

from __future__ import annotations

import hashlib
import hmac
import traceback
from base64 import b64decode, b64encode
from typing import Any

import pytest
import scramp  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from aioproducer._config.secret import Secret
from aioproducer.core.sasl.conversation import Action, Ask, Authenticated, Conversation, State
from aioproducer.core.sasl.mechanism import Derive, Mechanism, MechanismError, SendToken, Token
from aioproducer.core.sasl.msk_iam import MskIam
from aioproducer.core.sasl.oauthbearer import OAuthBearer
from aioproducer.core.sasl.plain import Plain
from aioproducer.core.sasl.scram import Scram, salted_password
from aioproducer.errors import AuthenticationError
from aioproducer.protocol.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

NONCE = "rOprNGfwEbeRWgbNEkqO"
CANARY = "pencil-canary"


def scram(name: str = "SCRAM-SHA-256", username: str = "user", most: int = 100_000, password: str = "pencil") -> Scram:
    return Scram(name, username, Secret(password), NONCE, most)


def agreed(mechanism: str = "PLAIN") -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=0, mechanisms=[mechanism])


def response(token: bytes, lifetime_ms: int = 0) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=token, session_lifetime_ms=lifetime_ms)


def token_of(action: Action) -> bytes:
    assert isinstance(action, Ask)
    assert isinstance(action.request, SaslAuthenticateRequest)
    return action.request.auth_bytes


# -- the table --------------------------------------------------------------------------------------------------------


def test_a_login_by_plain_from_end_to_end() -> None:
    login = Conversation(Plain("alice", Secret("secret")), "b:9092")
    asked = login.begin()
    assert isinstance(asked, Ask)
    assert isinstance(asked.request, SaslHandshakeRequest)
    assert asked.request.mechanism == "PLAIN"
    assert token_of(login.receive(agreed())) == b"\0alice\0secret"
    assert login.receive(response(b"", 3_600_000)) == Authenticated(3_600_000)
    assert login.state is State.DONE


def test_a_step_that_is_not_in_the_table_is_a_mistake_of_the_driver() -> None:
    login = Conversation(Plain("alice", Secret("secret")), "b:9092")
    with pytest.raises(AssertionError):
        login.receive(agreed())
    login.begin()
    with pytest.raises(AssertionError):
        login.receive(response(b""))
    with pytest.raises(AssertionError):
        login.derived(b"x")
    with pytest.raises(AssertionError):
        login.begin()


@pytest.mark.parametrize(
    ("code", "words"), [(33, "does not offer it; it offers GSSAPI"), (34, "does not expect a login"), (-1, "error -1")]
)
def test_a_handshake_that_is_refused(code: int, words: str) -> None:
    login = Conversation(Plain("alice", Secret(CANARY)), "b:9092")
    login.begin()
    with pytest.raises(AuthenticationError, match=f"PLAIN login failed: broker b:9092 .*{words}"):
        login.receive(SaslHandshakeResponse(error_code=code, mechanisms=["GSSAPI"]))
    assert login.state is State.FAILED
    with pytest.raises(AssertionError):
        login.receive(agreed())


def test_a_broker_that_never_has_enough() -> None:
    class Endless:
        name = "ENDLESS"
        blocks = False

        def start(self) -> SendToken:
            return SendToken(Token(b"x"))

        def challenged(self, token: bytes) -> SendToken:
            return SendToken(Token(b"x"))

        def derived(self, salted: bytes) -> SendToken:
            raise AssertionError

        def explain(self, message: str) -> str:
            return message

    login = Conversation(Endless(), "b")
    login.begin()
    login.receive(agreed())
    for _ in range(10):
        login.receive(response(b"y"))
    with pytest.raises(AuthenticationError, match="keeps asking for more"):
        login.receive(response(b"y"))


def test_a_negative_lifetime_is_none() -> None:
    login = Conversation(Plain("alice", Secret("secret")), "b")
    login.begin()
    login.receive(agreed())
    assert login.receive(response(b"", -5)) == Authenticated(0)


def mechanisms() -> list[Mechanism]:
    return [
        Plain("alice", Secret(CANARY)),
        scram("SCRAM-SHA-256", password=CANARY),
        scram("SCRAM-SHA-512", password=CANARY),
        OAuthBearer(Secret(CANARY), {}),
        MskIam(Token(CANARY.encode())),
    ]


@pytest.mark.parametrize("mechanism", mechanisms(), ids=lambda mechanism: mechanism.name)
def test_no_secret_is_in_what_is_shown_or_in_any_frame_of_a_failure(mechanism: Mechanism) -> None:
    login = Conversation(mechanism, "b")
    login.begin()
    action = login.receive(agreed())
    assert CANARY not in repr(action)
    no = SaslAuthenticateResponse(error_code=58, error_message="no", auth_bytes=b"", session_lifetime_ms=0)
    with pytest.raises(AuthenticationError) as refused:
        login.receive(no)
    shown = "".join(traceback.TracebackException.from_exception(refused.value, capture_locals=True).format())
    assert CANARY not in shown


# -- SCRAM ------------------------------------------------------------------------------------------------------------


def test_scram_sends_the_messages_of_the_rfc() -> None:
    """RFC 7677, section 3."""
    client = scram()
    first = client.start()
    assert isinstance(first, SendToken)
    assert bytes(first.token) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    derive = client.challenged(
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert isinstance(derive, Derive)
    final = client.derived(salted_password(derive.algorithm, b"pencil", derive.salt, derive.iterations))
    assert isinstance(final, SendToken)
    assert bytes(final.token) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    client.challenged(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@settings(max_examples=30)
@given(st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=20))
def test_scram_agrees_with_another_implementation(word: str) -> None:
    mechanism = scramp.ScramMechanism("SCRAM-SHA-512")
    server: Any = mechanism.make_server(lambda user: mechanism.make_auth_info(word, 4096) if user == word else None)
    client = scram("SCRAM-SHA-512", word, password=word)
    first = client.start()
    assert isinstance(first, SendToken)
    server.set_client_first(bytes(first.token).decode())
    derive = client.challenged(server.get_server_first().encode())
    assert isinstance(derive, Derive)
    final = client.derived(salted_password(derive.algorithm, word.encode(), derive.salt, derive.iterations))
    assert isinstance(final, SendToken)
    server.set_client_final(bytes(final.token).decode())
    client.challenged(server.get_server_final().encode())


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (f"r={NONCE},s=c2FsdA==,i=4096", "did not continue this client's nonce"),
        ("r=other,s=c2FsdA==,i=4096", "did not continue"),
        ("r=,s=c2FsdA==,i=4096", "did not continue"),
        (f"r={NONCE}x,s=c2FsdA==,i=1", "wants 1 iterations"),
        (f"r={NONCE}x,s=c2FsdA==,i=4095", "wants 4095 iterations"),
        (f"r={NONCE}x,s=c2FsdA==,i=100001", "wants 100001 iterations"),
        (f"r={NONCE}x,s=c2FsdA==,i=2147483648", "sasl_scram_max_iterations"),
        (f"r={NONCE}x,s=c2FsdA==,i={'9' * 5000}", "invalid number of iterations"),
        (f"r={NONCE}x,s=c2FsdA==,i=-1", "invalid number of iterations"),
        (f"r={NONCE}x,s=c2FsdA==,i=٤٠٩٦", "invalid number of iterations"),
        (f"r={NONCE}x,s=c2FsdA==", "incomplete"),
        (f"r={NONCE}x,s=,i=4096", "cannot be read"),
        (f"r={NONCE}x,s=!!!!,i=4096", "cannot be read"),
        (f"s=c2FsdA==,r={NONCE}x,i=4096", "incomplete"),
        (f"m=ext,r={NONCE}x,s=c2FsdA==,i=4096", "extension"),
        ("e=other-error", "other-error"),
        ("", "not SCRAM"),
        ("garbage", "not SCRAM"),
    ],
)
def test_a_first_message_of_the_broker_that_is_not_accepted(message: str, words: str) -> None:
    client = scram()
    client.start()
    with pytest.raises(MechanismError, match=words):
        client.challenged(message.encode())


def test_a_broker_that_does_not_know_the_password_is_detected() -> None:
    client = scram()
    client.start()
    client.challenged(f"r={NONCE}x,s=c2FsdA==,i=4096".encode())
    client.derived(b"\0" * 32)
    for answer in (b"v=AAAA", b"v=", b"", b"e=invalid-proof", b"x=1", b"\xff"):
        with pytest.raises(MechanismError):
            client.challenged(answer)
    signature = hmac.digest(hmac.digest(b"\0" * 32, b"Server Key", "sha256"), b"something else", "sha256")
    with pytest.raises(MechanismError, match="did not prove"):
        client.challenged(b"v=" + b64encode(signature))
    assert hashlib.sha256(b64decode(b64encode(signature))).digest()


# -- bytes ------------------------------------------------------------------------------------------------------------


def survives(data: bytes) -> None:
    """Whatever a broker says: an action, or our error."""
    for mechanism in mechanisms():
        login = Conversation(mechanism, "b")
        login.begin()
        action = login.receive(agreed())
        try:
            for _ in range(3):
                if isinstance(action, Derive):
                    assert 4096 <= action.iterations <= 100_000
                    action = login.derived(b"\0" * 32)
                elif isinstance(action, Ask):
                    action = login.receive(response(data))
        except AuthenticationError:
            pass


_ALMOST = st.builds(
    lambda parts: ",".join(f"{key}={value}" for key, value in parts).encode(errors="replace"),
    st.lists(
        st.tuples(
            st.sampled_from("rsivemnp"),
            st.one_of(st.text(max_size=20), st.just(NONCE + "x"), st.just("c2FsdA=="), st.integers().map(str)),
        ),
        max_size=6,
    ),
)


@settings(max_examples=300)
@given(st.one_of(st.binary(max_size=200), _ALMOST, st.recursive(st.just(b"1"), lambda x: x.map(lambda y: b"[" + y))))
def test_no_bytes_of_a_broker_do_anything_else(data: bytes) -> None:
    survives(data)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@settings(max_examples=200_000)
@given(st.one_of(st.binary(max_size=200), _ALMOST))
def test_no_bytes_of_a_broker_do_anything_else_for_long(data: bytes) -> None:
    """Five mechanisms for each input: a million in all."""
    survives(data)
