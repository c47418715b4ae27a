"""``units.kinds``: which kinds of units are scored, and how many of them were a model called alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from tests.live import QUESTION, Grounded, a_line, rag
from tests.samples.builders import root, unit

from spanscore import ConfigurationError, OnlineScorer, metric
from spanscore.config import Units
from spanscore.core.job import SampledUnit
from spanscore.pipeline.jobs import JobBuilder


@metric
def polite(sample) -> bool:
    return True


def run(**options):
    """Run one chain, and its model alone, twice."""
    with a_line(Grounded(), polite, **options) as (scorer, trace):
        config = {"callbacks": [scorer.handler]}
        rag().invoke(QUESTION, config=config)
        model = GenericFakeChatModel(messages=iter([AIMessage("Summary.")] * 2))
        for _ in range(2):
            model.invoke("Summarise this.", config=config)
        assert scorer.flush(10)
        return scorer.status(), trace


def test_every_kind_is_scored_and_the_models_called_alone_are_counted():
    status, _ = run()

    assert status.outcomes["polite"]["scored"] == 3
    assert status.kinds == {"workflow": 1, "chat": 2}
    assert "single model calls: 2 of 3 sampled units; units.kinds can leave them out" in str(status)


def test_a_kind_that_is_not_named_is_filtered_with_its_reason():
    status, _ = run(units=Units(kinds=["workflow", "agent"]))

    assert status.outcomes["polite"] == {"scored": 1, "filtered": 2}
    assert status.reasons["polite filtered"] == "units.kinds leaves out single model calls"


def test_workflows_are_left_out_likewise():
    status, _ = run(units=Units(kinds=["chat"]))

    assert status.outcomes["polite"] == {"scored": 2, "filtered": 1}
    assert status.reasons["polite filtered"] == "units.kinds leaves out workflows"


def test_a_kind_that_does_not_exist_is_an_error():
    with pytest.raises(
        ConfigurationError, match=r"units\.kinds\.0: is not one of 'workflow', 'agent' or 'chat' \(given: 'llm'\)"
    ):
        OnlineScorer([polite], units=Units(kinds=["llm"]))


def test_a_unit_without_a_root_and_a_root_that_no_dialect_accepts_have_different_reasons():
    whole = unit(root([], AIMessage("Summary.")))
    rootless = replace(whole, spans=())

    reasons = [JobBuilder([]).job(SampledUnit(one, {})).samples.reason for one in (whole, rootless)]

    assert reasons == ["no dialect accepts the root", "the unit has no root"]
