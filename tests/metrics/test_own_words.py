"""A metric on a user's own aspect or rubric takes five lines, and the lines in its docstring run unchanged."""

from __future__ import annotations

from doctest import DocTestFinder, DocTestRunner
from typing import Any

import pytest

from spanscore.metrics import AspectCritic, Rubrics


@pytest.mark.parametrize("metric", [AspectCritic, Rubrics])
def test_a_metric_on_ones_own_words_takes_five_lines(metric: Any) -> None:
    (example,) = DocTestFinder(recurse=False).find(metric, globs={})

    result = DocTestRunner(verbose=False).run(example, out=lambda _: None)

    assert sum(step.source.count("\n") for step in example.examples) <= 5
    assert (result.attempted, result.failed) == (len(example.examples), 0)
