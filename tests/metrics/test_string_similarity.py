"""StringSimilarity: properties for any two strings."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanscore.core.sample import SingleTurnSample
from spanscore.errors import ConfigurationError, MissingExtraError
from spanscore.metrics import StringSimilarity
from spanscore.metrics.kit.distances_rapidfuzz import DISTANCE_MEASURES

measures = st.sampled_from(sorted(DISTANCE_MEASURES))


def similarity(measure: str, one: str, other: str) -> float | None:
    metric = StringSimilarity(distance_measure=measure)  # type: ignore[arg-type]
    return metric.score_sync(SingleTurnSample(response=one, reference=other)).value


@given(measures, st.text(max_size=20), st.text(max_size=20))
def test_it_is_symmetric_and_one_for_equals_only(measure: str, one: str, other: str) -> None:
    value = similarity(measure, one, other)

    assert value == pytest.approx(similarity(measure, other, one))
    assert similarity(measure, one, one) == 1.0
    assert value is not None
    assert (value == 1.0) == (one == other)


def test_an_unknown_distance_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="distance_measure is 'cosine'; it is one of levenshtein"):
        StringSimilarity(distance_measure="cosine")  # type: ignore[arg-type]


def test_without_rapidfuzz_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)

    with pytest.raises(MissingExtraError, match=r'pip install "spanscore\[text\]"'):
        StringSimilarity()
