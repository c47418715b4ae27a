"""The request path, counted without a clock: spanscore's Python calls on the application's thread per invoke."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

MEASURED_WITH = {"opentelemetry-sdk": (1, 45), "langchain-core": (1, 8)}
"""The versions with which the limits were measured. Older ones have other callbacks, and lack parts that spanscore adds."""
OLDER = [name for name, measured in MEASURED_WITH.items() if tuple(map(int, version(name).split(".")[:2])) < measured]


@pytest.mark.skipif(bool(OLDER), reason=f"the limits were measured with a newer {' and '.join(OLDER)}")
def test_an_invoke_makes_no_more_calls_than_it_did_and_inner_units_add_none() -> None:
    # in a process of its own: handlers that other tests have attached are called too
    command = [sys.executable, "-m", "benchmarks.calls"]
    done = subprocess.run(
        command, check=False, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=300
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Targets: met." in done.stdout
