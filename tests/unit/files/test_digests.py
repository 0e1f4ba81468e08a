"""Digests of large content, and their texts, by which hash and content are told apart."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedsilo.files.digests import (
    ALGORITHMS,
    algorithm_of,
    digest_bytes,
    digest_text,
    file_digest,
    hasher,
    short_digest,
)

OF_NOTHING = {
    "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "blake3": "blake3-af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_digest_says_by_which_hash_it_was_made(algorithm: str) -> None:
    digest = digest_text(algorithm, hasher(algorithm).digest())
    assert digest == OF_NOTHING[algorithm]
    assert algorithm_of(digest) == algorithm
    assert digest_bytes(digest) == hasher(algorithm).digest()
    assert short_digest(digest) == digest_bytes(digest).hex()[:12]


def test_blake3_is_that_of_its_authors() -> None:
    """The content is the authors' test vector: the first bytes of 0, 1, ..., 250, 0, 1, ... See
    https://github.com/BLAKE3-team/BLAKE3, test_vectors.json."""
    content = (bytes(range(251)) * 410)[:102400]
    found = hasher("blake3")
    found.update(content)
    assert found.digest().hex() == "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085"


@given(pieces=st.lists(st.binary(max_size=300)), algorithm=st.sampled_from(sorted(ALGORITHMS)))
def test_pieces_do_not_matter(pieces: list[bytes], algorithm: str) -> None:
    whole, cut = hasher(algorithm), hasher(algorithm)
    whole.update(b"".join(pieces))
    for piece in pieces:
        cut.update(memoryview(piece))
    assert whole.digest() == cut.digest()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_digest_of_a_file_is_that_of_its_bytes(tmp_path: Path, algorithm: str) -> None:
    content = bytes(range(256)) * 10_000
    (tmp_path / "file").write_bytes(content)
    whole = hasher(algorithm)
    whole.update(content)
    with (tmp_path / "file").open("rb") as file:
        assert file_digest(file, algorithm) == digest_text(algorithm, whole.digest())
        assert file_digest(file, algorithm) == OF_NOTHING[algorithm]
