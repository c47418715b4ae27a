"""Destinations of a service's scores, and commands that end at their start."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.servers.otlp import OtlpReceiver

from spanscore.cli.main import main


@pytest.fixture
def backend() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        yield receiver


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run a command that cannot start, in this process; return its exit code, and its output in one line."""

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["spanscore", *arguments])
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), " ".join("".join(capsys.readouterr()).split())

    return run
