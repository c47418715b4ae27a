"""Destinations of a service's scores."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.servers.otlp import OtlpReceiver


@pytest.fixture
def backend() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        yield receiver
