"""A metric of another library, stood in for by one that raises: which errors are the judge's."""

from __future__ import annotations

from typing import Any

import pytest

from spanscore.core.sample import Sample, SingleTurnSample
from spanscore.core.score import UNIT_INTERVAL, Outcome
from spanscore.metrics import Finding
from spanscore.metrics.adapters.external import ExternalMetric


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
