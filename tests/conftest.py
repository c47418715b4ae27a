"""Fixtures every test may use: the real servers, once per session."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.servers import phoenix as phoenix_server


@pytest.fixture(scope="session")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[phoenix_server.Phoenix]:
    """A running Phoenix; skipped with a reason at home where it is not installed, a failure in CI."""
    if not phoenix_server.installed():
        _absent(f"Phoenix {phoenix_server.VERSION} is not installed: python -m tests.servers install")
    with phoenix_server.running(tmp_path_factory.mktemp("phoenix")) as server:
        yield server


def _absent(reason: str) -> None:
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(reason)
    pytest.skip(reason)
