"""Metrics of other libraries in the line: a chain is scored live by both, and neither's own calls are taken for traffic."""

from __future__ import annotations

import json
from typing import Any

import pytest
from deepeval.metrics import FaithfulnessMetric
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from ragas.metrics._faithfulness import Faithfulness
from tests.extras.test_deepeval import Scripted
from tests.live import QUESTION, a_line, identity_holds, rag

from spanscore.metrics.adapters import DeepEvalMetric, RagasMetric

STATEMENTS = {"statements": ["Paris is the capital of France."]}
VERDICTS = {"statements": [{"statement": "Paris is the capital of France.", "reason": "said", "verdict": 1}]}


class Judging(BaseChatModel):
    """Answers ragas's two questions of faithfulness."""

    @property
    def _llm_type(self) -> str:
        return "judging"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        answer = VERDICTS if "verdict" in str(messages[-1].content) else STATEMENTS
        said = AIMessage(content=json.dumps(answer), response_metadata={"finish_reason": "stop"})
        return ChatResult(generations=[ChatGeneration(message=said)])


@pytest.mark.filterwarnings("ignore:LangchainLLMWrapper is deprecated")
def test_a_chain_is_scored_by_both_and_its_judges_are_not() -> None:
    from ragas.llms import LangchainLLMWrapper  # a name pytest would look into, and be warned

    judge = LangchainLLMWrapper(Judging())
    metrics = [
        RagasMetric(Faithfulness(llm=judge), name="ragas_faithfulness"),
        DeepEvalMetric(FaithfulnessMetric(model=Scripted()), name="deepeval_faithfulness"),
    ]

    with a_line(*metrics) as (scorer, trace):
        scorer.install()
        answers = [rag().invoke(QUESTION) for _ in range(3)]
        done = scorer.flush(timeout=30)

        scored = [root.attributes for root in trace.roots]
        assert done
        assert len(answers) == len(scored) == 3
        assert [dict(root).get("spanscore.score.ragas_faithfulness") for root in scored] == [1.0] * 3
        assert [dict(root).get("spanscore.score.deepeval_faithfulness") for root in scored] == [0.5] * 3
        assert len(trace.named("chat")) == 3  # the chain's own
        assert identity_holds(scorer)
