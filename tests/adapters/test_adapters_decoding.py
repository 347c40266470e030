"""Content-Encoding, undone piece by piece."""

import gzip
import zlib

import pytest
import zstandard

from adapters.base import AdapterError, Kind
from adapters.decoding import EMPTY_MEMBERS, PIECE_BYTES, decoder_for

PLAIN = bytes(range(256)) * 40


def raw_deflate(data):
    stream = zlib.compressobj(wbits=-15)
    return stream.compress(data) + stream.flush()


def zstd(data):
    return zstandard.ZstdCompressor().compress(data)


FORMATS = [
    ("gzip", gzip.compress),
    ("deflate", zlib.compress),
    ("deflate", raw_deflate),
    ("zstd", zstd),
]
IDS = ["gzip", "zlib", "raw deflate", "zstd"]


def decoded(encoding, *chunks):
    decoder = decoder_for(encoding)
    pieces = [piece for chunk in chunks for piece in decoder.feed(chunk)]
    decoder.finish()
    return pieces


@pytest.mark.parametrize(("encoding", "compress"), FORMATS, ids=IDS)
def test_any_chunking(encoding, compress):
    """It does not matter where the chunks are cut (GW-8)."""
    data = compress(PLAIN)
    for size in (1, 2, 7, len(data)):
        chunks = [data[i : i + size] for i in range(0, len(data), size)]
        assert b"".join(decoded(encoding, *chunks)) == PLAIN


@pytest.mark.parametrize(("encoding", "compress"), FORMATS, ids=IDS)
@pytest.mark.parametrize("size", [PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES])
def test_piece_boundaries(encoding, compress, size):
    """Nothing is lost where the output fills a piece exactly."""
    assert b"".join(decoded(encoding, compress(bytes(size)))) == bytes(size)


@pytest.mark.parametrize(("encoding", "compress"), FORMATS, ids=IDS)
def test_pieces_are_bounded(encoding, compress):
    """One chunk of a bomb comes out in pieces, not at once (GW-8)."""
    pieces = decoded(encoding, compress(bytes(64 * 1024 * 1024)))
    assert max(map(len, pieces)) <= 8 * 1024 * 1024
    assert sum(map(len, pieces)) == 64 * 1024 * 1024


@pytest.mark.parametrize(("encoding", "compress"), FORMATS, ids=IDS)
def test_data_cut_short(encoding, compress):
    """Encoded data that ends too early is `parse`."""
    with pytest.raises(AdapterError, match="ends too early") as caught:
        decoded(encoding, compress(PLAIN)[:-1])
    assert (caught.value.kind, caught.value.code) == (Kind.PARSE, "UPSTREAM_PARSE")


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_garbage(encoding):
    """What is no such data is `parse`."""
    with pytest.raises(AdapterError) as caught:
        decoded(encoding, b"\xff<html>")
    assert caught.value.kind is Kind.PARSE


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "identity", None])
def test_nothing(encoding):
    """An empty body is empty whatever its encoding says."""
    assert b"".join(decoded(encoding)) == b""


@pytest.mark.parametrize(("encoding", "compress"), [FORMATS[0], FORMATS[3]], ids=["gzip", "zstd"])
def test_members_follow_each_other(encoding, compress):
    """gzip members and zstd frames may follow each other."""
    assert b"".join(decoded(encoding, compress(b"one") + compress(b"two"))) == b"onetwo"


def test_zstd_window_is_bounded():
    """A frame that asks for a window beyond 8 MiB is refused before it takes the memory."""
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = compressor.compress(b"x" * 1000) + compressor.flush()
    with pytest.raises(AdapterError):
        decoded("zstd", data)


@pytest.mark.parametrize(("encoding", "compress"), FORMATS, ids=IDS)
@pytest.mark.parametrize("size", range(16, 400, 16))
def test_output_left_behind(encoding, compress, size, monkeypatch):
    """Output that a full piece leaves inside the decoder comes out although no input is left."""
    monkeypatch.setattr("adapters.decoding.PIECE_BYTES", 16)
    assert b"".join(decoded(encoding, compress(bytes(size)))) == bytes(size)


@pytest.mark.parametrize(("encoding", "compress"), [FORMATS[0], FORMATS[3]], ids=["gzip", "zstd"])
def test_empty_members_are_bounded(encoding, compress):
    """Members without content are let pass up to a bound; beyond it they are work for nothing, and refused (GW-8)."""
    some = compress(b"a") + compress(b"") * (EMPTY_MEMBERS // 2) + compress(b"b")
    assert b"".join(decoded(encoding, some)) == b"ab"
    assert b"".join(decoded(encoding, some + compress(b"") * (EMPTY_MEMBERS // 2))) == b"ab"
    with pytest.raises(AdapterError, match="are empty"):
        decoded(encoding, some, compress(b"") * (EMPTY_MEMBERS // 2 + 1))


@pytest.mark.parametrize(("encoding", "compress"), [FORMATS[0], FORMATS[3]], ids=["gzip", "zstd"])
def test_many_small_members(encoding, compress):
    """Any number of members with content is put together (GW-8)."""
    assert b"".join(decoded(encoding, compress(b"a") * 5000)) == b"a" * 5000
