"""Access: the whole token, and nothing but the token."""

from __future__ import annotations

import pytest

from spanscore.service.plan import BearerToken


@pytest.mark.parametrize(
    ("header", "is_in"),
    [
        ("Bearer s3cret", True),
        ("bearer  s3cret ", True),
        ("Bearer s3cre", False),
        ("Bearer s3cret2", False),
        ("Bearer S3CRET", False),
        ("Bearer ", False),
        ("Basic s3cret", False),
        ("s3cret", False),
        ("", False),
    ],
)
def test_a_token_is_compared_whole(header: str, is_in: bool) -> None:
    assert BearerToken("s3cret").is_in(header) is is_in
