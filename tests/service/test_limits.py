"""A compressed body inflates to its content, or is rejected meanwhile, whatever size it declares."""

from __future__ import annotations

import gzip
import tracemalloc
from functools import partial

import pytest

from spanscore.service import requests as limits
from spanscore.service import zlib_ng
from spanscore.service.requests import NotCompressedError, TooLargeError, gunzip

compress = partial(gzip.compress, mtime=0)  # the same in every process that collects the tests
LONG = bytes(range(256)) * 1_000
LIE = compress(LONG)[:-4] + b"\xff\xff\xff\xff"


@pytest.fixture(autouse=True, params=["zlib", "zlib_ng.zlib_ng"])
def inflated_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    library = pytest.importorskip(request.param)
    monkeypatch.setattr(zlib_ng, "decompressobj", library.decompressobj)
    monkeypatch.setattr(limits, "InflateError", library.error)


@pytest.mark.parametrize(
    ("body", "whole"),
    [
        (compress(LONG), LONG),
        (compress(LONG) + compress(b"a"), LONG + b"a"),
        (compress(b"a") + compress(LONG), b"a" + LONG),
    ],
)
def test_a_body_of_one_member_or_more_inflates_to_what_it_was(body: bytes, whole: bytes) -> None:
    assert gunzip(body, len(whole)) == whole


@pytest.mark.parametrize(
    "body", [compress(LONG), compress(LONG) + compress(b""), compress(LONG[:-9]) + compress(b"a" * 10)]
)
def test_a_body_that_is_a_byte_too_long_is_refused(body: bytes) -> None:
    with pytest.raises(TooLargeError):
        gunzip(body, len(LONG) - 1)


@pytest.mark.parametrize(
    "body",
    [compress(LONG)[:-1], LIE, compress(LONG)[:40], b"\x1f\x8b", compress(LONG)[:-8] + bytes(8), b"no gzip"],
    ids=["cut", "a lie", "begun", "no more than magic", "another checksum", "none"],
)
def test_a_body_that_is_cut_short_or_lies_is_refused(body: bytes) -> None:
    with pytest.raises(NotCompressedError):
        gunzip(body, len(LONG))


def test_a_body_that_inflates_to_far_more_than_is_taken_never_is_in_memory() -> None:
    bomb = compress(bytes(50_000_000))

    tracemalloc.start()
    with pytest.raises(TooLargeError):
        gunzip(bomb, 100_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 1_000_000
