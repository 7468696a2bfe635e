"""Fuzzed input of the other decoders: frames, record batches, logins, tokens."""

from __future__ import annotations

import json
import struct
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from functools import partial

import pytest
from crc32c import crc32c

from aioproducer._config.secret import Secret
from aioproducer.core.sasl.conversation import Ask, Conversation
from aioproducer.core.sasl.mechanism import Derive, Mechanism, Token
from aioproducer.core.sasl.msk_iam import MskIam
from aioproducer.core.sasl.oauthbearer import OAuthBearer
from aioproducer.core.sasl.plain import Plain
from aioproducer.core.sasl.scram import Scram
from aioproducer.errors import AuthenticationError, CorruptRecord, ProtocolError
from aioproducer.net.security.strangers import guess_stranger
from aioproducer.net.security.tokens import _end_of
from aioproducer.protocol import decode_request_header, decode_response_header
from aioproducer.protocol.frames import FrameReader, encode_request
from aioproducer.protocol.messages import (
    MetadataRequest,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
from aioproducer.record import Codec, RecordBatchBuilder, compress, decompress, encode_batch
from aioproducer.record.reader import parse_records, read_batches
from tests.fuzzing import each_count, survive

every_codec = pytest.mark.parametrize("codec", Codec, ids=lambda codec: codec.name)

MOST = 1 << 20


def batch(codec: Codec) -> bytes:
    builder = RecordBatchBuilder()
    for number in range(5):
        builder.append(1000 + number, b"key" * number, b"value" * 4, [("name", b"header"), ("null", None)])
    builder.append(1005, None, b"")
    return b"".join(encode_batch(builder, codec).pieces)


def with_its_checksum(data: bytes) -> bytes:
    """The same with the right length and checksum, so that the reader looks further."""
    if len(data) < 61:
        return data
    fixed = bytearray(data)
    struct.pack_into(">i", fixed, 8, len(fixed) - 12)
    fixed[16] = 2
    struct.pack_into(">I", fixed, 17, crc32c(fixed[21:]))
    return bytes(fixed)


# -- frames -----------------------------------------------------------------------------------------------------------


@each_count
def test_frames(count: int) -> None:
    def read(data: bytes) -> None:
        reader = FrameReader(MOST)
        middle = len(data) // 2
        for piece in (data[:middle], data[middle:]):
            reader.feed(piece)
            for frame in reader:
                assert len(frame) <= len(data)
        assert reader.pending <= len(data)

    whole = b"".join(encode_request(1, "client", MetadataRequest(topics=[]), 12))
    survived = survive("frames", read, [whole, whole * 3], ProtocolError, count)
    assert min(survived) > count // 100


@each_count
@pytest.mark.parametrize("version", [1, 12])  # without tagged fields, and with
def test_headers(count: int, version: int) -> None:
    def read(data: bytes) -> None:
        refusals = 0
        for decode in (
            partial(decode_response_header, request=MetadataRequest, version=version),
            decode_request_header,
        ):
            try:
                decode(data)
            except ProtocolError:
                refusals += 1
        if refusals:
            raise ProtocolError(f"{refusals} refused")

    whole = b"".join(encode_request(1, "client", MetadataRequest(topics=[]), version))[4:]
    survived = survive(f"headers {version}", read, [whole, b"\0\0\0\1\2\1\3abc\5\1x"], ProtocolError, count)
    assert min(survived) > count // 100


# -- records ----------------------------------------------------------------------------------------------------------


@each_count
@every_codec
def test_record_batches(codec: Codec, count: int) -> None:
    def read(data: bytes) -> None:
        list(read_batches(with_its_checksum(data), max_size=MOST))

    assert survive(f"batches {codec.name}", read, [batch(codec)], CorruptRecord, count).refused > count // 10


@each_count
def test_records(count: int) -> None:
    survived = survive(
        "records", partial(parse_records, count=6, base_timestamp=0), [batch(Codec.NONE)[61:]], CorruptRecord, count
    )
    assert min(survived) > 0


@each_count
def test_batches_of_a_compacted_log_of_which_the_last_is_cut_off(count: int) -> None:
    def read(data: bytes) -> None:
        list(read_batches(with_its_checksum(data), max_size=MOST, partial_tail=True, compacted=True))

    assert min(survive("compacted", read, [batch(Codec.NONE), batch(Codec.LZ4)], CorruptRecord, count)) > 0


@each_count
@pytest.mark.parametrize("codec", [codec for codec in Codec if codec], ids=lambda codec: codec.name)
def test_compressed_bytes(codec: Codec, count: int) -> None:
    def read(data: bytes) -> None:
        assert len(decompress(codec, data, max_size=MOST)) <= MOST

    seeds = [compress(codec, text) for text in (b"", b"kafka" * 20, bytes(range(256)), b"x" * 100_000)]
    assert min(survive(f"compressed {codec.name}", read, seeds, CorruptRecord, count)) > 0


# -- logins -----------------------------------------------------------------------------------------------------------

NONCE = "rOprNGfwEbeRWgbNEkqO"
SECRET = Secret("pencil")
MECHANISMS: Mapping[str, Callable[[], Mechanism]] = {
    "PLAIN": lambda: Plain("alice", SECRET),
    "SCRAM-SHA-256": lambda: Scram("SCRAM-SHA-256", "alice", SECRET, NONCE, 100_000),
    "SCRAM-SHA-512": lambda: Scram("SCRAM-SHA-512", "alice", SECRET, NONCE, 100_000),
    "OAUTHBEARER": lambda: OAuthBearer(SECRET, {}),
    "AWS_MSK_IAM": lambda: MskIam(Token(b"signed")),
}
ANSWERS = [
    b"",
    f"r={NONCE}x,s=c2FsdA==,i=4096".encode(),
    f"r={NONCE}x,s=c2FsdA==,i=4096,x=extension".encode(),
    b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    b"e=invalid-proof",
    b'{"status":"invalid_token","scope":"kafka"}',
    b'{"version":"2020_10_22","request-id":"x"}',
]


@each_count
@pytest.mark.parametrize("name", MECHANISMS)
def test_logins(name: str, count: int) -> None:
    """Each input is used twice: as the token of every answer, and as the words of a refusal."""

    def hold(data: bytes) -> None:
        login = Conversation(MECHANISMS[name](), "b")
        login.begin()
        action = login.receive(SaslHandshakeResponse(error_code=0, mechanisms=[name]))
        reported = data.decode(errors="replace")
        answer = SaslAuthenticateResponse(error_code=0, error_message=reported, auth_bytes=data, session_lifetime_ms=0)
        for _ in range(3):
            if isinstance(action, Derive):
                assert 4096 <= action.iterations <= 100_000
                action = login.derived(b"\0" * 32)
            elif isinstance(action, Ask):
                action = login.receive(answer)
                answer.error_code = data[0] & 1 if data else 0

    assert survive(name, hold, ANSWERS, AuthenticationError, count).refused > count // 10


@each_count
def test_tokens(count: int) -> None:
    """The end of a token, which its issuer claims and which is not verified."""

    def read(data: bytes) -> None:
        for claims in (data, urlsafe_b64encode(data)):
            end = _end_of(Secret(f"e30.{claims.decode(errors='replace')}.sig"))
            assert end is None or abs(end) < 1e300

    seeds = [json.dumps({"exp": end}).encode() for end in (1_800_000_000, 1.8e9, None, "x", [[[1]]])]
    assert survive("tokens", read, seeds, (), count).taken == count


@each_count
def test_strangers(count: int) -> None:
    """A peer that is not Kafka."""

    def read(data: bytes) -> None:
        for uses_tls in (True, False):
            guess = guess_stranger(data, uses_tls=uses_tls)
            assert guess is None or guess.isascii()

    seeds = [b"\x15\x03\x03\0\2\2\x46", b"HTTP/1.1 400 Bad Request\r\n", b"SSH-2.0-OpenSSH", b"\0\0\0\0"]
    assert survive("strangers", read, seeds, (), count).taken == count
