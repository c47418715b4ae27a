"""The notes of ``scorer.status()`` outside of its tables: only if there is something to report."""

import pytest
from langchain_core.runnables import RunnableLambda
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from rich.console import Console
from tests.judges.models import Answers
from tests.live import QUESTION, Failing, Grounded, a_line, run_rag

from spanscore import ConfigurationError, OnlineScorer, metric, semconv
from spanscore.config import Monitoring, Rule, RuleCondition, Sampling
from spanscore.core import log
from spanscore.core.printable import TextTable
from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Scale
from spanscore.judges import judge
from spanscore.metrics import AspectCritic, Faithfulness, ResponseRelevancy
from spanscore.scorer import pipeline_of
from spanscore.testing import make_score, make_span, make_unit
from spanscore.wiring.status import Status

GOOD = '{"reason": "r", "verdict": 1}'
COST = (10 * 0.15 + 2 * 0.60) / 1e6


def harmless(**prices):
    asked = judge(Answers(GOOD), prices={model.replace("_", "-"): price for model, price in prices.items()} or None)
    return AspectCritic(asked, name="harmless", definition="Is it harmless?")


def test_a_price_becomes_a_cost_on_the_evaluation_span_and_in_the_sum():
    reader = InMemoryMetricReader()
    with a_line(harmless(answers_1=(0.15, 0.60)), meter_provider=MeterProvider([reader])) as (scorer, trace):
        run_rag(scorer)

        assert sums(reader)["spanscore.judge.cost"] == pytest.approx(COST)
        assert (scorer.status().unpriced, scorer.status().overflowed) == ([], 0)
        assert "price" not in str(scorer.status())
        assert "other" not in str(scorer.status())
    assert trace.evaluations[0].attributes["spanscore.judge.cost_usd"] == pytest.approx(COST)


@pytest.mark.parametrize("prices", [{}, {"another": (1, 2)}], ids=["no prices", "another's"])
def test_a_model_without_a_price_is_named_and_has_no_cost(prices):
    reader = InMemoryMetricReader()
    with a_line(harmless(**prices), meter_provider=MeterProvider([reader])) as (scorer, trace):
        run_rag(scorer)

        assert scorer.status().unpriced == ["answers-1"]
        assert "no price of answers-1: " in str(scorer.status())
        assert "spanscore.judge.cost" not in sums(reader)
    assert "spanscore.judge.cost_usd" not in trace.evaluations[0].attributes


def test_measurements_that_were_folded_are_reported_with_their_metric_and_label():
    with a_line() as (scorer, _):
        for number in range(1_003):
            of = make_unit(make_span(attributes={"gen_ai.request.model": f"model-{number}"}))
            pipeline_of(scorer).telemetry.record(of, make_score(metric="grounded"))
        status = scorer.status()

    said = "3 measurements are counted as 'other': grounded has too many different values of gen_ai.request.model"
    assert said in " ".join(str(status).split())


def test_segments_that_cannot_all_be_distinguished_are_refused_with_the_numbers():
    users = [f"user-{number}" for number in range(799)]

    with pytest.raises(
        ConfigurationError, match=r"800 of user \(other included\) make 1,600 attribute sets .* 1,500 fit"
    ):
        OnlineScorer([Grounded()], monitoring=Monitoring(dimensions={"user": users}))


@pytest.mark.parametrize("taken", ["id", "revision"])
def test_a_metric_cannot_take_the_name_of_an_attribute_of_every_score(taken):
    makers = (
        lambda: OnlineScorer([Grounded(taken)]),
        lambda: metric(name=taken)(lambda sample: 1.0),
        lambda: AspectCritic("lexical", name=taken, definition="Is it harmless?"),
    )
    for make in makers:
        with pytest.raises(ConfigurationError, match=f"'{taken}': spanscore.score.{taken} is already an attribute"):
            make()


class Judge:
    """Is unreachable, and raises an error that quotes too much."""

    model = "gpt-4o-mini"

    async def ask(self, prompt):
        raise ConnectionRefusedError(f"sk-key at {QUESTION}")


def unreachable():
    return AspectCritic(Judge(), name="harmless", definition="Is it harmless?")


def asked(scorer, times=1):
    run_rag(scorer, times)
    return scorer.status()


def test_a_status_tells_rate_and_mean_so_far():
    with a_line(
        Grounded(),
        Failing(None),
        sampling=Sampling(
            rates={"failing": 0.0}, rules=[Rule(rate=0.25, name="errors", when=RuleCondition(status="error"))]
        ),
    ) as (
        scorer,
        _,
    ):
        status = asked(scorer, 4)

    assert status.rates == {"grounded": (1.0, 1.0), "failing": (0.0, 0.25)}
    assert status.means["grounded"] == (1.0, pytest.approx(0.2499, abs=1e-4), 1.0)  # 4 of 4
    assert status.means["failing"] is None
    assert "0 … 0.25" in str(status)
    assert "0.25–1.00" in str(status)


def test_an_open_scale_has_no_mean():
    with a_line(Open()) as (scorer, _):
        status = asked(scorer)

    assert (status.outcomes, status.means) == ({"open": {"scored": 1}}, {"open": None})


def test_a_rate_that_takes_nothing_says_what_to_use_while_testing():
    with a_line(sample_rate=0.0) as (scorer, _):
        before, after = scorer.status(), asked(scorer)

    assert "sampling took none" not in str(before)
    assert "no unit is scored, because sampling took none; sample_rate=0: use 1.0 while testing" in str(after)


@pytest.mark.parametrize("columns", [*range(40, 112, 2)])
def test_a_table_fits_any_width_and_breaks_no_word(columns):
    rows = [
        ["response_relevancy", "gpt-4o-mini", "0.83\n0.71–0.91", "judge_error 3\nnot_sampled 12", "a longer reason"]
    ]
    console = Console(width=columns, color_system=None)

    with console.capture() as capture:
        console.print(
            TextTable(("metric", "judge", "mean (95 %)", "outcomes", "latest reason"), rows, title="spanscore")
        )
    text = capture.get()

    assert max(len(line.rstrip()) for line in text.splitlines()) <= columns
    assert "…" not in text
    words = set(text.replace("│", " ").replace("┃", " ").replace(",", " ").replace(":", " ").split())
    assert {"response_relevancy", "gpt-4o-mini", "0.71–0.91", "judge_error", "not_sampled", "longer"} <= words


@pytest.mark.parametrize("columns", [20, 30, 60])
def test_a_table_breaks_no_word_of_wide_letters(columns):
    console = Console(width=columns, color_system=None)

    with console.capture() as capture:
        console.print(TextTable(("category", "share"), [["技術的な問題", "12 %"], ["返金", "88 %"]]))

    assert {"技術的な問題", "返金"} <= set(capture.get().replace("│", " ").split())


@pytest.mark.parametrize("columns", [40, 60, 80, 110])
def test_a_status_fits_the_terminal_and_breaks_no_word(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    with a_line(unreachable(), Grounded("answers_in_the_words_of_the_context")) as (scorer, _):
        text = str(asked(scorer, 2))

    assert max(map(len, text.splitlines())) <= columns
    assert {"answers_in_the_words_of_the_context", "judge_error", "(ConnectionRefusedError)"} <= set(
        text.replace("│", " ").split()
    )


def test_a_judge_that_cannot_be_reached_is_logged_once_without_content_or_keys(caplog):
    with a_line(unreachable()) as (scorer, _):
        asked(scorer, 3)

    assert [(one.name, one.levelname, one.getMessage()) for one in caplog.records] == [
        (
            "spanscore",
            "WARNING",
            "spanscore: judge_error: the judge could not be reached (ConnectionRefusedError): units are not scored, see "
            "scorer.status(); check the model's name and base_url",
        )
    ]


def test_a_cause_is_reported_again_after_an_hour(caplog):
    for now_s in (0.0, 3599.0, 3600.0, 3601.0):
        log.log_once("a cause", "what to do", now_s=now_s)

    assert caplog.messages == ["spanscore: what to do"] * 2


def test_an_application_without_metrics_logs_that_no_alert_can_work(caplog):
    with caplog.at_level("INFO", "spanscore"), a_line(meter_provider=None) as (scorer, _):
        status = asked(scorer)

    remedy = "no metrics, so no alerts: set a MeterProvider, or call scorer.serve_metrics(9464), in a pod with host='0.0.0.0'"
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [("WARNING", f"spanscore: {remedy}")]
    assert list(status.providers[1]) == ["metrics", "none", "", remedy]


def test_metrics_that_are_served_are_not_called_missing(caplog):
    with caplog.at_level("INFO", "spanscore"), a_line(meter_provider=None) as (scorer, _):
        port = scorer.serve_metrics(0)
        status = asked(scorer)

    assert caplog.messages == []
    assert list(status.providers[1]) == ["metrics", "served", f"http://127.0.0.1:{port}/metrics", ""]


@pytest.mark.parametrize(
    ("host", "in_pod", "provider", "expected"),
    [
        ("127.0.0.1", True, None, True),
        ("::1", True, None, True),
        ("localhost", True, None, True),
        ("0.0.0.0", True, None, False),
        ("127.0.0.1", False, None, False),
        ("127.0.0.1", True, MeterProvider(), False),
    ],
)
def test_metrics_that_only_their_own_pod_could_read_are_reported(monkeypatch, caplog, host, in_pod, provider, expected):
    monkeypatch.delenv(semconv.KUBERNETES_ENV, raising=False)
    if in_pod:
        monkeypatch.setenv(semconv.KUBERNETES_ENV, "10.0.0.1")
    with caplog.at_level("INFO", "spanscore"), a_line(meter_provider=provider) as (scorer, _):
        scorer.serve_metrics(0, host)
        status = asked(scorer)

    remedy = 'serve_metrics: {port: 9464, host: "0.0.0.0"}'
    assert [one.levelname for one in caplog.records if remedy in one.getMessage()] == ["WARNING"] * expected
    assert any(remedy in note for note in status.notes) == expected


@pytest.mark.parametrize(("preferred", "expected"), [("delta", True), ("lowmemory", False), ("cumulative", False)])
def test_metrics_that_leave_as_differences_are_reported(monkeypatch, caplog, preferred, expected):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", preferred)
    as_an_exporter_has_it = OTLPMetricExporter()._preferred_temporality
    meters = MeterProvider([InMemoryMetricReader(preferred_temporality=as_an_exporter_has_it)])

    with caplog.at_level("INFO", "spanscore"), a_line(meter_provider=meters) as (scorer, _):
        status = asked(scorer)
        scorer.serve_metrics(0)  # a Prometheus reads cumulative values there
        served = scorer.status()

    remedy = "metrics are sent as delta: the rules need cumulative"
    assert [any(remedy in note for note in one.notes) for one in (status, served)] == [expected, False]
    assert any(remedy in message for message in caplog.messages) == expected


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("faithfulness", r"write Faithfulness\(llm\), or spanscore.metrics.create\('faithfulness', judge=…\)"),
        ("bleu_score", r"write \w+\(\), or spanscore.metrics.create\('bleu_score'\)"),
        ("faithfullness", "did you mean 'faithfulness'"),
    ],
)
def test_a_name_instead_of_a_metric_is_answered_with_how_to_make_one(name, says):
    with pytest.raises(ConfigurationError, match=says):
        OnlineScorer([name])


class Open(Grounded):
    """On a scale without ends."""

    scale = Scale(kind="ordinal", range=None)

    def __init__(self):
        super().__init__("open")


def sums(reader):
    return {
        metric.name: sum(point.value for point in metric.data.data_points)
        for resource in reader.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if hasattr(metric.data, "is_monotonic") and metric.data.data_points
    }


def test_what_a_provider_that_is_the_applications_did_is_called_unknown():
    with a_line(meter_provider=None) as (scorer, _):
        status = asked(scorer)

    assert list(status.providers[0]) == ["traces", "given", "", ""]
    assert "sent by your provider: the result is unknown here" in str(status)
    assert "yours" in str(status)


def test_metrics_that_lack_the_same_field_say_it_once_and_that_it_may_be_no_fault():
    with a_line(Faithfulness("lexical"), Faithfulness("lexical", name="grounding")) as (scorer, _):
        RunnableLambda(lambda question: "In Rome.").invoke("Where?", config={"callbacks": [scorer.handler]})
        assert scorer.flush(5)
        text = " ".join(str(scorer.status()).split())

    assert text.count("needs retrieved_contexts") == 1
    assert "faithfulness, grounding, latest missing_field: needs retrieved_contexts" in text
    assert "missing_field is no fault if a metric does not fit a unit" in text


def test_where_the_units_are_is_reported_in_words():
    hold = {"parked": 2, "done": 3, "deadline": 1, "overflow": 0, "lost": 4}
    status = Status([], 1_200, 7, {}, {}, {}, {}, {}, (5, 1_000), hold, closed=True)

    text = " ".join(str(status).split())

    assert "shut down: 1,200 units seen; 5 of at most 1,000 waiting for their scores" in text
    assert (
        "spans of 2 units held back until they are scored; of 3 exported with their outcomes; of 1 exported before"
        in text
    )
    assert "4 spans lost: their provider was shut down first" in text
    assert "7 units rejected, because the event queue was full: raise event_queue_size, or lower the rates" in text
    assert "too many were waiting" not in text


def test_what_the_offline_judge_is_blind_to_stands_below_its_numbers():
    with a_line(ResponseRelevancy("lexical"), harmless()) as (scorer, _):
        status_text = str(scorer.status())
    with a_line(harmless()) as (scorer, _):
        other = str(scorer.status())

    assert "Offline, response_relevancy counts the words" in status_text
    assert "harmless passes" not in status_text  # its judge is a model
    assert "ffline" not in other


@pytest.mark.parametrize(
    ("submitted", "sampled", "rates"), [(3, 0, (1.0, 1.0)), (3, 2, (0.5, 1.0)), (0, 2, (0.5, 0.5))]
)
def test_the_rate_of_samples_that_are_scored_whatever_it_is_is_1(submitted, sampled, rates):
    with a_line(Grounded(), sample_rate=0.5) as (scorer, _):
        for number in range(submitted + sampled):
            sample = SingleTurnSample(user_input="Who?", response="I.", retrieved_contexts=["I."])
            scorer.submit(sample, apply_sampling=number >= submitted)
        assert scorer.flush(10)

        assert scorer.status().rates == {"grounded": rates}
