"""A metric of another library, stood in for by one that raises, and the message without that library.

The adapters themselves are tested in tests/extras.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from spanscore.core.sample import Sample, SingleTurnSample
from spanscore.core.score import UNIT_INTERVAL, Outcome
from spanscore.errors import MissingExtraError
from spanscore.metrics import ContextRelevancyV0, FaithfulnessWithHHEM, Finding, SemanticSimilarity
from spanscore.metrics.adapters import DeepEvalMetric, RagasMetric
from spanscore.metrics.adapters.external import ExternalMetric
from spanscore.testing import ScriptedJudge


class StatusError(Exception):
    """An error as a provider's client raises it."""

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        super().__init__("SECRET")
        self.status_code, self.body = status, body


class LengthFinishReasonError(Exception):
    """An error of the name that OpenAI's client raises for a cut answer."""


class Raises(ExternalMetric):
    def __init__(self, error: Exception) -> None:
        self._error = error
        super().__init__(
            object(),
            library="pydantic",
            revision="1",
            name="raises",
            pass_at=None,
            requires={"single_turn": ["response"]},
            scale=UNIT_INTERVAL,
            parameters={},
            judge_model="",
        )

    async def measure(self, sample: Sample) -> Finding:
        async def work() -> Finding:
            raise RuntimeError("SECRET") from self._error

        return await self._run_async(work)


@pytest.mark.parametrize(
    ("error", "error_type"),
    [
        (StatusError(429, {"code": "insufficient_quota"}), "quota"),
        (StatusError(401, {}), "not_allowed"),
        (StatusError(404, {"code": "model_not_found"}), "no_such_model"),
        (StatusError(400, {"code": "context_length_exceeded"}), "too_long"),
        (StatusError(400, {"code": "content_filter"}), "declined"),
        (StatusError(418, {}), "http_418"),
        (LengthFinishReasonError("SECRET"), "cut"),
    ],
)
def test_a_failure_of_the_judge_is_the_judge_s_error(error: Exception, error_type: str) -> None:
    score = Raises(error).score_sync(SingleTurnSample(response="a"))

    assert (score.outcome, score.error_type) == (Outcome.JUDGE_ERROR, error_type)
    assert "SECRET" not in (score.reason or "")


def test_any_other_error_is_the_metric_s() -> None:
    score = Raises(KeyError("SECRET")).score_sync(SingleTurnSample(response="a"))

    assert (score.outcome, score.error_type) == (Outcome.METRIC_ERROR, "RuntimeError")


NEEDY: dict[str, Any] = {
    "ragas": lambda: RagasMetric(object()),
    "deepeval": lambda: DeepEvalMetric(object()),
    "transformers": lambda: FaithfulnessWithHHEM(ScriptedJudge()),
    "sentence_transformers": lambda: SemanticSimilarity(cross_encoder="some/model"),
    "sentence_transformers ": lambda: ContextRelevancyV0(ScriptedJudge(), agreement="bert_score"),
}


@pytest.mark.parametrize("library", NEEDY)
def test_without_its_library_it_says_what_to_install(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library.strip(), None)
    extra = library if library in {"ragas", "deepeval"} else "hhem"

    with pytest.raises(MissingExtraError, match=rf'pip install "spanscore\[{extra}\]"'):
        NEEDY[library]()


def test_the_package_exports_both_adapters() -> None:
    from spanscore.metrics import adapters

    assert adapters.__all__ == ["DeepEvalMetric", "RagasMetric"]
    assert adapters.RagasMetric is RagasMetric
