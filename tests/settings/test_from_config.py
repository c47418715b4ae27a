"""A scorer from a file: what it says is what it does, and what is wrong is named."""

import pytest
from tests.live import QUESTION, a_trace, rag

from spanscore import ConfigurationError, OnlineScorer
from spanscore.metrics import ContextRelevance

WHOLE = """
judge: {model: lexical}
sampling:
  rate: 0.05
  rates: {faithfulness: 0.02}
  rules: [{when: {status: error}, rate: 1.0}, {when: {metadata: {user_tier: gold}}, rate: 0.5}]
metrics:
  - faithfulness: {pass_at: 0.7}
  - aspect_critic: {name: harmless, definition: "Could the response cause harm?"}
attach: {hold: 10s, event: false}
limits: {timeout: 5s}
"""


def write(tmp_path, text):
    file = tmp_path / "spanscore.yaml"
    file.write_text(text)
    return file


def test_a_file_makes_a_scorer(tmp_path):
    trace = a_trace()
    file = write(tmp_path, WHOLE.replace("0.05", "1.0").replace("0.02", "1.0"))

    with OnlineScorer.from_config(file, tracer_provider=trace.provider) as scorer:
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})

    root = trace.roots[0].attributes
    assert root["spanscore.score.faithfulness"] == 1.0
    assert "spanscore.score.harmless" in root


def test_the_environment_overrides_the_file(tmp_path, monkeypatch):
    monkeypatch.setenv("SPANSCORE_SAMPLING__RATE", "0")
    trace = a_trace()

    with OnlineScorer.from_config(write(tmp_path, "metrics: [exact_match]"), tracer_provider=trace.provider) as scorer:
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        scorer.flush(5)

        assert scorer.status().outcomes == {"exact_match": {"not_sampled": 1}}


WRONG = {
    "metrics: [faithfullness]": ["faithfullness", "faithfulness"],
    "metrics: [exact_match]\nsampling: {rate: 3}": ["sampling.rate", "3"],
    "metrics: [exact_match]\nsampling: {rte: 0.3}": ["sampling.rte", "'rate'"],
    "metrics: [exact_match]\nattach: {hold: soon}": ["attach.hold", "soon", "30s"],
    "metrics: [exact_match]\nsampling: {rates: {faith: 0.1}}": ["faith", "exact_match"],
    "metrics: []": ["metrics"],
    "judge: {model: lexical}": ["metrics", "required"],
    "metrics: [exact_match": ["spanscore.yaml"],
    "metrics: [response_relevancy]\nembeddings: 'nonesuch:x'": ["nonesuch"],
    "metrics: [exact_match]\njudge: {model: 'nonesuch:x'}": ["nonesuch"],
    "metrics: [exact_match, exact_match]": ["exact_match", "name="],
    "metrics: [exact_match]\nalerts: {exact_match: {baselin: 0.8}}": ["alerts.exact_match.baselin", "'baseline'"],
    "metrics: [exact_match]\nalerts: {exact_match: {baseline: 0.1, min_drop: 0.2}}": ["alerts.exact_match", "min_drop"],
    "metrics: [exact_match]\nmonitoring: {segments: {tier: []}}": ["monitoring.segments", "tier"],
    "metrics: [exact_match]\nmonitoring: {segments: {spanscore.series: [a]}}": ["spanscore.series"],
    "metrics: [exact_match]\njudge: {prices: {m: {input: -1, output: 2}}}": ["judge.prices.m.input", "-1"],
    "metrics: [exact_match]\njudge: {prices: {m: {input: 1, outptu: 2}}}": ["judge.prices.m.outptu", "'output'"],
    "metrics: [{faithfulness: {strictness: 3}}]": ["faithfulness", "strictness"],
    "metrics: [exact_match]\nsegments: {tier: [gold]}": ["segments: no such", "did you mean 'monitoring.segments'"],
    "metrics: [exact_match]\nsampling: {rules: [{rate: 1, when: {min_duration_s: 2}}]}": ["write slower_than"],
    "metrics: [exact_match]\nsampling: {rules: [{rate: 1, when: {metadata: tier, equals: gold}}]}": [
        "sampling.rules.0.when.metadata: is a single value (given: 'tier'); write keys with values: metadata: {key: value}",
        "sampling.rules.0.when.equals: no such setting (given: 'gold'); write metadata: {key: value}",
    ],
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_named_with_what_is_allowed(tmp_path, text):
    with pytest.raises(ConfigurationError) as raised:
        OnlineScorer.from_config(write(tmp_path, text), tracer_provider=a_trace().provider)

    assert all(word in str(raised.value) for word in WRONG[text]), str(raised.value)


def test_an_abandoned_answer_is_scored_where_the_file_asks_for_it(tmp_path):
    file = write(tmp_path, "metrics: [{'tests.live:Grounded': {}}]\ncapture: {score_abandoned: true}")

    with OnlineScorer.from_config(file, tracer_provider=a_trace().provider) as scorer:
        stream = rag().stream(QUESTION, config={"callbacks": [scorer.handler]})
        next(stream)
        stream.close()
        scorer.flush(5)

        assert scorer.status().outcomes == {"grounded": {"scored": 1}}


def test_embeddings_have_a_name_too(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    text = "metrics: [response_relevancy]\nembeddings: 'openai:text-embedding-3-small'"

    with OnlineScorer.from_config(write(tmp_path, text), tracer_provider=a_trace().provider) as scorer:
        assert list(scorer.status().eligible) == ["response_relevancy"]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"nowhere\.yaml"):
        OnlineScorer.from_config(tmp_path / "nowhere.yaml")


def test_a_status_prints_as_a_small_table(tmp_path):
    with OnlineScorer.from_config(write(tmp_path, WHOLE), tracer_provider=a_trace().provider) as scorer:
        text = str(scorer.status())

    assert "faithfulness" in text
    assert max(map(len, text.splitlines())) <= 110


def test_a_rate_is_found_under_the_name_that_its_metric_had_before(tmp_path):
    text = "metrics: [context_relevance]\nsampling: {rates: {nv_context_relevance: 0.25}}"
    own = ContextRelevance("lexical")

    with (
        OnlineScorer.from_config(write(tmp_path, text)) as scorer,
        OnlineScorer.from_config(write(tmp_path, text), metrics=[own]) as other,
        OnlineScorer(metrics=[own], rates={"nv_context_relevance": 0.25}) as direct,
    ):
        rates = [one.status().rates for one in (scorer, other, direct)]

    assert rates == [{"context_relevance": (0.25, 0.25)}] * 3
