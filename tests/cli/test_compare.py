"""``spanscore compare``: a release with a broken retriever is worse, an equal release is not; by sums and by spans."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnablePassthrough
from opentelemetry.sdk.resources import Resource
from tests.live import CONTEXT, QUESTION, a_line, a_trace, model
from tests.monitoring import backfill
from typer.testing import CliRunner

from spanscore import semconv
from spanscore.cli.main import app
from spanscore.config import Compare
from spanscore.core.codecs.otlp import json_line
from spanscore.errors import ConfigurationError
from spanscore.metrics import Faithfulness
from spanscore.monitoring import promql as names
from spanscore.outputs.instrument_table import MOMENTS
from spanscore.scorer import pipeline_of

REQUESTS, MINUTES = 150, 200
OLD, BROKEN, ALIKE = "1.4", "1.5", "1.6"
SUMS = (semconv.SCORED, *MOMENTS)
CONFIG = """\
metrics: [faithfulness]
judge: {model: lexical}
compare: {by: service.version}
"""


class Shelf(BaseRetriever):
    """Finds the document for the first ``found`` of ten requests, and another one for the rest."""

    found: int
    asked: int = 0

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        self.asked += 1
        return [Document(CONTEXT if self.asked % 10 < self.found else "Bananas are yellow.")]


class Served(NamedTuple):
    """The data of a release: the spans of its traffic, and its counters by attributes."""

    spans: Path
    sums: dict[str, dict[Any, float]]


def served(version: str, folder: Path, *, found: int) -> Served:
    """Run a release: real chains, a scorer in its process, the offline judge."""
    trace = a_trace(resource=Resource({"service.version": version, "service.name": "shop"}))
    prompt = ChatPromptTemplate.from_template("Use {context} to answer {question}")
    chain: Any = {"context": Shelf(found=found), "question": RunnablePassthrough()} | prompt | model()
    options: dict[str, Any] = {"sample_rate": 0.8, "compare": Compare(by="service.version")}
    with a_line(Faithfulness("lexical"), trace=trace, **options) as (scorer, _):
        for _ in range(REQUESTS):
            chain.invoke(QUESTION, config={"callbacks": [scorer.handler]})
        assert scorer.flush(60)
        telemetry = pipeline_of(scorer).telemetry
        assert telemetry is not None
        sums = {name: telemetry.sums(name) for name in SUMS}
        lost = telemetry.compared_missing_weights()
    sums |= {semconv.COMPARED_MISSING_WEIGHT: {labels: one.w for labels, one in lost.items()}}
    sums |= {semconv.COMPARED_MISSING_WEIGHT2: {labels: one.w2 for labels, one in lost.items()}}
    file = folder / f"{version}.jsonl"
    lines = (json_line([span]) for span in trace.spans)
    file.write_text("".join(over_hours(lines)), encoding="utf-8")
    return Served(file, sums)


def over_hours(lines: Iterable[str], minutes: int = MINUTES) -> Iterator[str]:
    """Yield lines of one span each as if their traces had begun one after the other, over so many minutes."""
    read = [json.loads(line) for line in lines]
    spans = [line["resourceSpans"][0]["scopeSpans"][0]["spans"][0] for line in read]
    first_ns: dict[str, int] = {}
    for span in spans:
        trace, start_ns = span["traceId"], int(span["startTimeUnixNano"])
        first_ns[trace] = min(first_ns.get(trace, start_ns), start_ns)
    order = {trace: place for place, trace in enumerate(sorted(first_ns, key=lambda trace: first_ns[trace]))}
    for line, span in zip(read, spans, strict=True):
        begin_ns = 1_782_900_000 * 10**9 + order[span["traceId"]] * minutes * 60 * 10**9 // len(order)
        for key in ("startTimeUnixNano", "endTimeUnixNano"):
            span[key] = str(int(span[key]) - first_ns[span["traceId"]] + begin_ns)
        yield json.dumps(line, separators=(",", ":")) + "\n"


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Served]:
    folder = tmp_path_factory.mktemp("releases")
    return {version: served(version, folder, found=found) for version, found in ((OLD, 9), (BROKEN, 4), (ALIKE, 9))}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "spanscore.yaml"
    file.write_text(CONFIG)
    return file


@pytest.fixture(scope="module")
def server(
    releases: dict[str, Served], prometheus: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A Prometheus that has scraped all three: 1.4 twice as long as 1.5 and 1.6."""
    folder, end = tmp_path_factory.mktemp("prometheus"), int(time.time()) // 60 * 60
    samples: dict[str, list[Any]] = {}
    for version, of in releases.items():
        for instrument, sums in of.sums.items():
            for labels, total in sums.items():
                values = {names.label(key): value for key, value in labels} | {"job": "shop", "instance": version}
                samples.setdefault(names.series(instrument), []).append((values, scraped(total, end, version)))
    backfill.write_samples(prometheus, folder, samples)
    with prometheus.running(folder, retention="90d") as running:
        yield running


def scraped(total: float, end: int, version: str) -> list[tuple[float, float]]:
    """Return a counter that grew to its total; of 1.4 ten times as much, half of it before the others came."""
    minutes, times = (2 * MINUTES, 10) if version == OLD else (MINUTES, 1)
    return [(end - 60 * (minutes - n), total * times * n / minutes) for n in range(minutes + 1)]


def ran(*arguments: Any) -> Any:
    return CliRunner().invoke(app("compare"), ["compare", *map(str, arguments)])


def said(done: Any) -> dict[str, Any]:
    (one,) = json.loads(done.stdout)["metrics"]
    return dict(one)


def test_two_files_tell_that_the_release_with_the_broken_retriever_is_worse(
    releases: dict[str, Served], config: Path
) -> None:
    done = ran(config, releases[OLD].spans, releases[BROKEN].spans, "--tolerance", 0.05)

    assert done.exit_code == 1, done.output
    assert "1.5 is worse on faithfulness by 0." in done.stdout
    assert "effective scores" in done.stdout


def test_two_files_do_not_tell_a_release_worse_that_differs_in_nothing(
    releases: dict[str, Served], config: Path
) -> None:
    done = ran(config, releases[OLD].spans, releases[ALIKE].spans, "--tolerance", 0.3)
    tight = ran(config, releases[OLD].spans, releases[ALIKE].spans)

    assert (done.exit_code, tight.exit_code) == (0, 3), done.output + tight.output
    assert "within the tolerance of 0.3" in done.stdout
    assert "is not decided yet" in tight.stdout


def test_one_file_of_both_is_distinguished_by_the_resource(
    releases: dict[str, Served], config: Path, tmp_path: Path
) -> None:
    both = tmp_path / "both.jsonl"
    both.write_text("".join(releases[version].spans.read_text() for version in (OLD, BROKEN)))
    apart, together = ran(config, releases[OLD].spans, releases[BROKEN].spans, "--json"), ran(
        config, both, "--control", OLD, "--candidate", BROKEN, "--json"
    )  # fmt: skip

    assert (said(apart)["difference"], said(apart)["interval"]) == (
        said(together)["difference"],
        said(together)["interval"],
    )


def test_evaluation_spans_alone_are_enough_to_tell_releases_apart(
    releases: dict[str, Served], config: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "alone.jsonl"
    lines = [
        line for version in (OLD, BROKEN) for line in releases[version].spans.read_text().splitlines(keepends=True)
    ]
    alone.write_text("".join(line for line in lines if '"name":"evaluation faithfulness"' in line))

    done = ran(config, alone, "--control", OLD, "--candidate", BROKEN)

    assert done.exit_code == 1, done.output


@pytest.mark.server
def test_a_prometheus_tells_the_same_and_counts_both_from_the_later_ones_first_score(
    releases: dict[str, Served], server: Any, config: Path
) -> None:
    done = ran(config, "--prometheus", server.url, "--control", OLD, "--candidate", BROKEN, "--since", "6h", "--json")

    assert done.exit_code == 1, done.output
    found = said(done)
    spans = said(ran(config, releases[OLD].spans, releases[BROKEN].spans, "--json"))
    assert found["difference"] == pytest.approx(spans["difference"], abs=0.03)
    assert found["b"]["sums"]["n"] == pytest.approx(spans["b"]["sums"]["n"], rel=0.2)
    assert found["a"]["sums"]["n"] == pytest.approx(5 * spans["a"]["sums"]["n"], rel=0.2)
    assert json.loads(done.stdout)["notes"] == []


@pytest.mark.server
def test_a_prometheus_does_not_tell_worse_what_differs_in_nothing(server: Any, config: Path) -> None:
    where = ("--prometheus", server.url, "--control", OLD, "--candidate", ALIKE, "--job", "shop")

    done, tight = ran(config, *where, "--tolerance", 0.2), ran(config, *where)

    assert (done.exit_code, tight.exit_code) == (0, 3), done.output + tight.output


@pytest.mark.server
def test_a_prometheus_with_less_than_ten_blocks_says_from_when_on_there_is_an_answer(server: Any, config: Path) -> None:
    done = ran(config, "--prometheus", server.url, "--control", OLD, "--candidate", BROKEN, "--since", "50m")

    assert done.exit_code == 3, done.output
    assert "not yet on faithfulness: there are scores in 3 of the 10 quarters of an hour" in done.stdout
    assert "the first answer is due at 2" in done.stdout


def test_files_of_too_short_a_time_are_no_verdict(releases: dict[str, Served], config: Path, tmp_path: Path) -> None:
    short = []
    for version in (OLD, BROKEN):
        file = tmp_path / f"{version}.jsonl"
        file.write_text("".join(over_hours(releases[version].spans.read_text().splitlines(), 55)))
        short.append(file)

    done = ran(config, *short)

    assert done.exit_code == 3, done.output
    assert "not yet on faithfulness: there are scores in 3 of the 10 quarters of an hour" in done.stdout


@pytest.mark.server
def test_a_window_that_slides_is_reported_and_one_from_a_time_on_is_not(server: Any, config: Path) -> None:
    where = (config, "--prometheus", server.url, "--control", OLD, "--candidate", BROKEN, "--since")
    began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 10_200))

    sliding, fixed = ran(*where, "170m"), ran(*where, began)

    assert "the interval holds at one look" in sliding.stdout
    assert "at one look" not in fixed.stdout


@pytest.mark.server
def test_a_release_that_has_no_score_yet_is_waited_for_and_one_that_nobody_knows_is_refused(
    server: Any, config: Path
) -> None:
    coming = ran(config, "--prometheus", server.url, "--control", OLD, "--candidate", "2.0")
    unknown = ran(config, "--prometheus", server.url, "--control", "2.0", "--candidate", BROKEN)

    assert coming.exit_code == 3
    assert "2.0 has no scores yet; there are scores of 1.4, 1.5, 1.6" in coming.stdout
    assert isinstance(unknown.exception, ConfigurationError)
    assert "--control 2.0: no scores since 1d; there are scores of 1.4, 1.5, 1.6" in str(unknown.exception)


@pytest.mark.server
def test_a_prometheus_without_sums_by_release_is_distinguished_from_one_without_traffic(
    prometheus: ModuleType, config: Path, tmp_path: Path
) -> None:
    with prometheus.running(tmp_path) as empty:
        done = ran(config, "--prometheus", empty.url, "--control", OLD, "--candidate", BROKEN)

    assert "has no sums by release since 1d: does the scorer run with compare: {by: service.version}" in str(
        done.exception
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give --prometheus URL, .* or files of spans"),
        (["a.jsonl", "--prometheus", "http://localhost:9090"], "give --prometheus URL, .* or files of spans"),
        (
            ["--prometheus", "http://localhost:9090"],
            "give --control and --candidate, the releases: --control 1.4 --candidate 1.5",
        ),
        (["a.jsonl", "--control", "1.4"], "give --control and --candidate"),
        (
            ["a.jsonl"],
            r"give two files, A.jsonl B.jsonl; or name the releases in one file with --control and --candidate",
        ),
        (["a.jsonl", "--control", "1.4", "--candidate", "1.4"], "both '1.4'"),
        (["a.jsonl", "b.jsonl", "--tolerance", "5"], "--tolerance is 5"),
        (["a.jsonl", "b.jsonl", "--level", "95"], "--level is 95"),
        (["a.jsonl", "b.jsonl", "--metric", "politeness"], "--metric politeness: .* it has faithfulness"),
        (["no.jsonl", "b.jsonl"], "no.jsonl: No such file"),
        (
            ["--prometheus", "http://127.0.0.1:1", "--control", "1", "--candidate", "2"],
            "no Prometheus answers at http://127.0.0.1:1",
        ),
        (
            ["--prometheus", "http://x:1", "--control", "1", "--candidate", "2", "--since", "soon"],
            "'soon' is not a time",
        ),
    ],
)
def test_what_cannot_be_compared_says_what_to_do(config: Path, arguments: list[str], words: str) -> None:
    done = ran(config, *arguments)

    with pytest.raises(ConfigurationError, match=words):
        raise done.exception


def test_a_value_that_no_span_has_lists_those_that_there_are(releases: dict[str, Served], config: Path) -> None:
    done = ran(config, releases[OLD].spans, "--control", OLD, "--candidate", BROKEN)

    assert "--candidate 1.5: none of the" in str(done.exception)
    assert "has this service.version; there are 1.4" in str(done.exception)


def test_a_file_without_scores_and_a_configuration_without_compare_are_reported(
    releases: dict[str, Served], tmp_path: Path
) -> None:
    plain, empty = tmp_path / "plain.yaml", tmp_path / "empty.jsonl"
    plain.write_text("metrics: [faithfulness]\njudge: {model: lexical}\n")
    empty.write_text("")

    assert "empty.jsonl holds no evaluations" in str(ran(plain, empty, releases[OLD].spans).exception)
    for source in ([releases[OLD].spans], ["--prometheus", "http://localhost:1"]):
        assert "has no compare" in str(ran(plain, *source, "--control", OLD, "--candidate", BROKEN).exception)
