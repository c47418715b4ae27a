"""A plugin of pytest: runs the applications of ``tests/applications`` under another instrumentation, next to our own.

    python -m pytest tests/applications -p tests.entry_points.beside --beside openllmetry --beside-out seen.json

Each request runs once, under both: the test attaches our callback, and a processor gets the instrumentation's spans of the same
run. The output has the differences of each test, if there are any.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from tests.applications import application
from tests.applications.application import Judged, Witness, seen_of
from tests.entry_points.ways import Instrumented, scored_roots
from tests.traces.recordings import differences

from spanscore.config import Outputs
from spanscore.testing import MemorySink

Judge = Callable[..., list[Judged]]
MOST_AT_ONCE = 4
"""Requests of a batch: each instrumentation decides for itself which of them began first."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--beside", required=True, help="the instrumentation")
    parser.addoption("--beside-out", required=True, type=Path, help="the file to write")


def pytest_configure(config: pytest.Config) -> None:
    """Put it in place before any application is imported."""
    beside = Beside(Instrumented(config.getoption("--beside")), config.getoption("--beside-out"))
    config.pluginmanager.register(beside)
    application.judged = partial(beside.judged, application.judged)  # type: ignore[assignment]


class OfAnother(Witness):
    """A metric in another version: one that two scorers have in the same version scores a run once."""

    base_version = "beside"


class Beside:
    """Runs each request under both, and records the differences of their samples."""

    def __init__(self, instrumented: Instrumented, out: Path) -> None:
        self._instrumented, self._out = instrumented, out
        self._found: dict[str, list[str]] = {}
        self._test = ""

    @pytest.hookimpl
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        self._test = item.nodeid.removeprefix("tests/applications/")

    @pytest.hookimpl
    def pytest_sessionfinish(self) -> None:
        self._out.write_text(json.dumps(self._found, indent=1), encoding="utf-8")

    def judged(self, judged: Judge, run: Callable[[Any], Any], **options: Any) -> list[Judged]:
        """Return the samples of our own capture; record the differences of the other's."""
        sink, witnesses = MemorySink(), (OfAnother("single_turn"), OfAnother("multi_turn"))
        same = {name: value for name, value in options.items() if name not in ("trace", "sinks")}
        with self._instrumented.scored(*witnesses, outputs=Outputs(sinks=[sink]), **same) as (scorer, trace):
            ours = judged(run, **options)
            assert scorer.flush(30)
            theirs = seen_of(scored_roots(trace), sink, witnesses, scorer.status().reasons)
        self._found.setdefault(self._test, []).extend(_differences(ours, theirs))
        return ours


def _differences(ours: list[Judged], theirs: list[Judged]) -> list[str]:
    if len(ours) != len(theirs):
        return [f"{len(theirs)} units, not {len(ours)}"]
    if len(ours) > MOST_AT_ONCE:
        return _in_order(ours, theirs)
    return min((_in_order(ours, order) for order in permutations(theirs)), key=len)


def _in_order(ours: Sequence[Judged], theirs: Sequence[Judged]) -> list[str]:
    return sorted({how for one, other in zip(ours, theirs, strict=True) for how in _differing(one, other)})


def _differing(ours: Judged, theirs: Judged) -> set[str]:
    if ours.outcome or theirs.outcome:
        given, expected = (one.outcome or "a sample" for one in (theirs, ours))
        return set() if given == expected else {f"{given}, not {expected}"}
    return differences((theirs.single_turn, theirs.multi_turn), (ours.single_turn, ours.multi_turn))
