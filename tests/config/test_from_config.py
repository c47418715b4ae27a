"""A scorer from a file: it behaves as configured, and errors are named."""

import traceback

import pytest
from tests.live import QUESTION, a_trace, rag, run_rag
from tests.servers.openai_api import OpenAIServer

from spanscore import ConfigurationError, OnlineScorer
from spanscore.config import Sampling
from spanscore.config.reading import read_settings
from spanscore.judges.effects.cost import table_of
from spanscore.judges.effects.limited import RateLimited
from spanscore.judges.effects.middleware import layers
from spanscore.metrics import ContextRelevance
from spanscore.scorer import pipeline_of
from spanscore.wiring.accounts import judges_of

WHOLE = """
judge: {model: lexical}
sampling:
  rate: 0.05
  rates: {faithfulness: 0.02}
  rules: [{when: {status: error}, rate: 1.0}, {when: {metadata: {user_tier: gold}}, rate: 0.5}]
metrics:
  - faithfulness: {pass_at: 0.7}
  - aspect_critic: {name: harmless, definition: "Could the response cause harm?"}
outputs: {hold: 10s, event: false}
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
        run_rag(scorer)

        assert scorer.status().outcomes == {"exact_match": {"not_sampled": 1}}


GATEWAY = "metrics: [exact_match]\njudge: {model: 'openai:m', base_url: 'http://h/v1'"
WRONG = {
    "metrics: [faithfullness]": ["faithfullness", "faithfulness"],
    "metrics: [exact_match]\nsampling: {rate: 3}": ["sampling.rate", "3"],
    "metrics: [exact_match]\nsampling: {rte: 0.3}": ["sampling.rte", "'rate'"],
    "metrics: [exact_match]\noutputs: {hold: soon}": ["outputs.hold", "soon", "30s"],
    "metrics: [exact_match]\nsampling: {rates: {faith: 0.1}}": ["faith", "exact_match"],
    "metrics: []": ["metrics"],
    "metrics: [{faithfulness: {judge: {model: lexical}}}]": ["metrics: faithfulness.judge", "shadow"],
    "metrics: [{answer_relevancy: {embeddings: lexical}}]": ["metrics: answer_relevancy.embeddings", "at the top"],
    "metrics: [exact_match]\nserve: {grpc: localhost}": ["serve.grpc", "'localhost'", "127.0.0.1:4317"],
    "metrics: [exact_match]\nserve: {grpc: 41317}": ["serve.grpc", "'41317'", "127.0.0.1:4317"],
    "metrics: [exact_match]\nserve: {http: 'http://localhost:4318'}": ["serve.http", "127.0.0.1:4317"],
    "metrics: [exact_match]\nserve: {mode: copy}": ["serve.mode", "tee"],
    "metrics: [exact_match]\nserve: {tokenfile: t}": ["serve.tokenfile", "'token_file'"],
    "metrics: [exact_match]\nserve: {token_file: '', insecure: true}": ["serve.token_file", "is empty"],
    "metrics: [exact_match]\nserve: {token_env: '', insecure: true}": ["serve.token_env", "is empty"],
    "metrics: [exact_match]\nunits: {idle_timout: 2s}": ["units.idle_timout", "'idle_timeout'"],
    "judge: {model: lexical}": ["metrics", "required"],
    "metrics: [exact_match": ["spanscore.yaml"],
    "metrics: [response_relevancy]\nembeddings: 'nonesuch:x'": ["nonesuch"],
    "metrics: [exact_match]\njudge: {model: 'nonesuch:x'}": ["nonesuch"],
    "metrics: [exact_match]\njudge: {model: lexical, base_url: 'http://h/v1'}": [
        "judge.base_url applies only to a judge given as"
    ],
    "metrics: [exact_match]\njudge: {model: 'openai:m', api_key_env: J, api_key_file: k}": [
        "api_key_env and api_key_file"
    ],
    "metrics: [exact_match]\njudge: {model: 'openai:m', base_url: 'gateway:80'}": [
        "judge.base_url is 'gateway:80'",
        "https://",
    ],
    "metrics: [exact_match]\njudge: {model: 'openai:m', api_key_env: NOWHERE}": [
        "judge.api_key_env names",
        "NOWHERE is not",
    ],
    "metrics: [exact_match]\njudge: {model: 'openai:m', base_url: 'http://h/v1', cache: nowhere/c.sqlite}": [
        "judge.cache",
        "nowhere/c.sqlite",
    ],
    "metrics: [exact_match]\njudge: {model: 'openai:m', temperature: 0}": [
        "judge.temperature",
        "write model_kwargs: {temp",
    ],
    "metrics: [exact_match]\nlimits: {queue_bytes: 2 megs}": [
        "limits.queue_bytes",
        "'2 megs' is no size",
        "2MB",
    ],
    "metrics: [exact_match]\nlimits: {queue_bytes: 0B}": [
        "limits.queue_bytes",
        "must be 1 or more",
        "0B",
    ],
    "metrics: [exact_match]\njudge: {structured: xml}": ["judge.structured", "'schema'", "'xml'"],
    "metrics: [exact_match]\njudge: {requests_per_minute: 0}": ["judge.requests_per_minute", "greater than 0"],
    "metrics: [exact_match]\njudge: {timeout: 0}": ["judge.timeout", "greater than 0"],
    f"{GATEWAY}, fallback: [{{model: 'openai:m', base_url: 'http://h/v1'}}]}}": ["judge.fallback asks m again"],
    f"{GATEWAY}, fallback: [{{base_url: 'http://h/v1'}}]}}": ["judge.fallback.0.model: is required"],
    f"{GATEWAY}, fallback: [{{model: 'openai:n', fallbck: []}}]}}": ["judge.fallback.0.fallbck: no such setting"],
    f"{GATEWAY}, fallback: 'openai:n'}}": ["judge.fallback", "list"],
    f"{GATEWAY}, max_input_tokens: 0}}": ["judge.max_input_tokens: must be 1 or more (given: 0)"],
    "metrics: [exact_match, exact_match]": ["exact_match", "name="],
    "metrics: [exact_match]\nalerts: {exact_match: {baselin: 0.8}}": ["alerts.exact_match.baselin", "'baseline'"],
    "metrics: [exact_match]\nalerts: {exact_match: {baseline: 0.1, min_drop: 0.2}}": ["alerts.exact_match", "min_drop"],
    "metrics: [exact_match]\nmonitoring: {dimensions: {tier: []}}": ["monitoring.dimensions", "tier"],
    "metrics: [exact_match]\nmonitoring: {dimensions: {spanscore.evaluator.version: [a]}}": [
        "spanscore.evaluator.version"
    ],
    "metrics: [exact_match]\njudge: {prices: {m: {input: -1, output: 2}}}": ["judge.prices.m.input", "-1"],
    "metrics: [exact_match]\njudge: {prices: {m: {input: 1, outptu: 2}}}": ["judge.prices.m.outptu", "'output'"],
    "metrics: [{faithfulness: {strictness: 3}}]": ["faithfulness", "strictness"],
    "metrics: [exact_match]\ndimensions: {tier: [gold]}": [
        "dimensions: no such",
        "did you mean 'monitoring.dimensions'",
    ],
    "metrics: [exact_match]\nsampling: {rules: [{rate: 1, when: {min_duration_s: 2}}]}": ["write slower_than"],
    "metrics: [exact_match]\nsampling: {rules: [{rate: 1, when: {metadata: tier, equals: gold}}]}": [
        "sampling.rules.0.when.metadata: is no mapping (given: 'tier'); write keys with values: metadata: {key: value}",
        "sampling.rules.0.when.equals: no such setting; write metadata: {key: value}",
    ],
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_named_with_what_is_allowed(tmp_path, text):
    with pytest.raises(ConfigurationError) as raised:
        OnlineScorer.from_config(write(tmp_path, text), tracer_provider=a_trace().provider)

    assert all(word in str(raised.value) for word in WRONG[text]), str(raised.value)


KEY = "sk-Judge0123456789"
KEYS = {
    f"judge: {{model: 'openai:m', api_key: {KEY}}}": "judge.api_key: do not write a key into the file; write api_key_env",
    f"judge: {{model: 'openai:m', model_kwargs: {{api_key: {KEY}}}}}": "judge.model_kwargs.api_key: do not write a key into",
    f"judge: {{model: 'openai:m', model_kwargs: {{default_headers: {{x-api-key: {KEY}}}}}}}": "default_headers.x-api-key: do",
    f"judge: {{model: 'openai:m', base_url: 'https://me:{KEY}@host/v1'}}": "base_url holds a password",
    f"judge: {{model: 'openai:m', base_url: ['https://me:{KEY}@host/v1']}}": "judge.base_url",
    f"judge: {{model: 'openai:m', api_key_env: {KEY}}}": "api_key_env names no variable",
    f"judge: [{{api_key: {KEY}}}]": "judge: is a list (given: ",
    f"judge: {{model: 'openai:m', api_key: {{value: {KEY}}}}}": "judge.api_key: no such setting; write api_key_env",
    f"outputs: {{sinks: [{{'nonesuch:Sink': {{token: {KEY}}}, x: 1}}]}}": "outputs.sinks.0",
}


@pytest.mark.parametrize("text", KEYS)
def test_a_key_in_the_file_is_refused_where_it_is_a_judges_and_never_shown(tmp_path, text):
    with pytest.raises(ConfigurationError) as raised:
        OnlineScorer.from_config(write(tmp_path, f"metrics: [exact_match]\n{text}"), tracer_provider=a_trace().provider)

    assert KEYS[text] in str(raised.value)
    assert "Judge0123456789" not in "".join(traceback.format_exception(raised.value))


def test_a_judge_has_those_that_stand_in_for_it_by_name_and_with_settings_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    others = "['openai:n', {model: 'openai:o', base_url: 'http://h/v1', timeout: 5s}]"
    text = f"metrics: [faithfulness]\njudge: {{model: 'openai:m', timeout: 7s, fallback: {others}}}"

    with OnlineScorer.from_config(write(tmp_path, text), tracer_provider=a_trace().provider) as scorer:
        (judge,) = judges_of(pipeline_of(scorer).metrics["faithfulness"])
        accounts = scorer.status().accounts

    assert [one.model for one in judge.judges] == ["m", "n", "o"]
    assert [limiter.timeout for one in judge.judges for limiter in layers(one) if isinstance(limiter, RateLimited)] == [
        7.0,
        7.0,
        5.0,
    ]
    assert [repr(one.account) for one in accounts] == ["openai m", "openai n", "openai o"]


def test_a_key_that_the_environment_holds_may_be_in_a_header(tmp_path, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    headers = "{default_headers: {x-api-key: '${JUDGE_KEY}'}}"
    with OpenAIServer(lambda _: "no") as server:
        text = (
            f"metrics: [faithfulness]\njudge: {{model: 'openai:m', base_url: '{server.url}', model_kwargs: {headers}}}"
        )

        with OnlineScorer.from_config(write(tmp_path, text), tracer_provider=a_trace().provider) as scorer:
            rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})

    assert {sent["x-api-key"] for sent in server.headers} == {KEY}


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


SIZES = {"2MB": 2_000_000, "500 kB": 500_000, "1.5MiB": 1_572_864, "1kb": 1_000, "77": 77, "12B": 12}


@pytest.mark.parametrize("text", SIZES)
def test_a_size_is_written_with_its_unit(tmp_path, text):
    file = write(tmp_path, f"metrics: [exact_match]\nlimits: {{queue_bytes: {text}}}")

    assert read_settings(file).settings.limits.queue_bytes == SIZES[text]


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
        OnlineScorer(metrics=[own], sampling=Sampling(rates={"nv_context_relevance": 0.25})) as direct,
    ):
        rates = [one.status().rates for one in (scorer, other, direct)]

    assert rates == [{"context_relevance": (0.25, 0.25)}] * 3


def test_the_metrics_of_a_file_share_its_judge_and_its_embeddings(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    text = "metrics: [response_relevancy, answer_correctness]\njudge: {model: 'openai:m'}\nembeddings: 'openai:e'"

    with OnlineScorer.from_config(write(tmp_path, text), tracer_provider=a_trace().provider) as scorer:
        one, other = pipeline_of(scorer).metrics.values()

    assert [id(judge) for judge in judges_of(one)] == [id(judge) for judge in judges_of(other)]
    assert len(judges_of(one)) == 2


def test_embeddings_are_asked_at_the_prices_and_as_patiently_as_the_judge(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    text = (
        "metrics: [response_relevancy]\nembeddings: 'openai:e'\njudge:\n  model: openai:m\n  timeout: 7s\n  queue_timeout: 1m\n"
        "  max_attempts: 2\n  prices: {m: {input: 1, output: 2}, e: {input: 3, output: 0}}\n  budget: [{usd: 1, per: 1h}]"
    )

    with OnlineScorer.from_config(write(tmp_path, text), tracer_provider=a_trace().provider) as scorer:
        asked = [*layers(judges_of(pipeline_of(scorer).metrics["response_relevancy"])[-1])]

    [limited] = [one for one in asked if isinstance(one, RateLimited)]
    assert (limited.timeout, limited.queue_timeout, limited.max_attempts) == (7.0, 60.0, 2)
    assert table_of(asked[0])["e"].input == 3.0
