"""A handler in a chain that is copied or pickled."""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.prompts import PromptTemplate
from tests.live import a_trace
from tests.service.metrics import Answered

from spanscore import OnlineScorer


def a_chain() -> Any:
    return PromptTemplate.from_template("{q}") | FakeListLLM(responses=["Paris."])


COPIES: dict[str, Callable[[Any], Any]] = {
    "a config, copied": lambda handler: a_chain().with_config(copy.copy({"callbacks": [handler]})),
    "a config, deep-copied": lambda handler: a_chain().with_config(copy.deepcopy({"callbacks": [handler]})),
    "a chain, deep-copied": lambda handler: copy.deepcopy(a_chain().with_config(callbacks=[handler])),
    "a model, deep-copied": lambda handler: (
        PromptTemplate.from_template("{q}")
        | FakeListLLM(responses=["Paris."], callbacks=[handler]).model_copy(deep=True)
    ),
    "the handler, copied": lambda handler: a_chain().with_config(callbacks=[copy.copy(handler)]),
}


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_records_as_the_handler_does(copied: str) -> None:
    trace = a_trace()
    with OnlineScorer([Answered()], tracer_provider=trace.provider) as scorer:
        answers = [COPIES[copied](scorer.handler).invoke({"q": "What is the capital?"}) for _ in range(2)]
        assert scorer.flush(10)

    assert answers == ["Paris."] * 2
    assert scorer.status().eligible == {"answered": 2}


def test_an_unpickled_chain_answers_and_records_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with (
        OnlineScorer([Answered()], tracer_provider=a_trace().provider) as scorer,
        caplog.at_level(logging.WARNING, "spanscore"),
    ):
        pickled = pickle.dumps(a_chain().with_config(callbacks=[scorer.handler]))
        answers = [pickle.loads(pickled).invoke({"q": "What is the capital?"}) for _ in range(2)]
        assert scorer.flush(10)

    assert answers == ["Paris."] * 2
    assert scorer.status().eligible == {"answered": 0}
    assert len([record for record in caplog.records if "an unpickled chain has the handler" in record.message]) == 1
