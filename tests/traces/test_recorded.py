"""Every recording gives the samples of our own capture of the same program, except for data that its writer omits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.servers.openai_api import OpenAIServer
from tests.traces.event_only import FORMS, SAMPLES, SAMPLES_ENV, SPANS, run
from tests.traces.newest import changes
from tests.traces.record import INSTRUMENTATIONS
from tests.traces.recordings import RECORDINGS, Recording, differences
from tests.traces.said import answer

from spanscore.core.sample import Samples, SingleTurnSample
from spanscore.core.score import Outcome

NO_IDS = "retrieved_context_ids"
"""OpenLLMetry writes the texts of documents alone."""
NO_NAME = "metadata of the conversation"
"""Only LangChain's messages have the name of their agent."""
NO_HISTORY = "no conversation"
"""The root holds the words of this turn alone."""
DIFFERENCES = {
    "genai-langchain agent": {NO_NAME},
    "genai-langchain thread": {NO_HISTORY},
    "genai-openai-agents thread": {NO_HISTORY},
    "google-adk agent": {"conversation"},  # a tool's result is wrapped: {"result": 5}
    "google-adk thread": {NO_HISTORY},
    "langfuse agent": {NO_NAME},
    "mlflow agent": {NO_NAME},
    "openinference-llama-index agent": {NO_NAME},
    "openinference-llama-index thread": {NO_HISTORY},
    "openllmetry-langchain rag": {NO_IDS},
    "pydantic-ai agent": {NO_NAME},
    "vercel-ai agent": {NO_NAME},
}
OF_ONE_VERSION = {"openllmetry-langchain-0.40.14 rag": {NO_IDS, "retrieved_contexts"}}  # its retriever had no span
WITH_CONTENT = [recording for recording in RECORDINGS if "without-content" not in recording.program]
NOT_RUN = {"vercel-ai": "ai", "by-hand-openai-v2": "opentelemetry-instrumentation-openai-v2"}
"""Writers that ``record`` runs as no instrumentation of Python → their packages."""
PAGE = Path(__file__).parents[2] / "docs/start/already-traced.md"
VERSIONS = PAGE.read_text(encoding="utf-8").partition("## Versions")[2]
WITHOUT = [recording for recording in RECORDINGS if "without-content" in recording.program]


def _differences(recording: Recording) -> set[str]:
    given, expected = recording.samples(), recording.expected()
    assert [samples.outcome for samples in given] == [None] * len(expected)
    pairs = [(samples.single_turn, samples.multi_turn) for samples in given]
    return set().union(*map(differences, pairs, expected))


@pytest.mark.parametrize("recording", WITH_CONTENT, ids=str)
def test_a_recording_gives_the_samples_of_our_own_capture(recording: Recording) -> None:
    named = OF_ONE_VERSION.get(
        str(recording), DIFFERENCES.get(f"{recording.instrumentation} {recording.program}", set())
    )

    assert _differences(recording) == named


@pytest.mark.parametrize("recording", RECORDINGS, ids=str)
def test_the_documentation_lists_the_version_of_every_recording(recording: Recording) -> None:
    name, _, version = recording.writer.rpartition("-")
    package = NOT_RUN.get(name) or INSTRUMENTATIONS[name].package

    [row] = [line for line in VERSIONS.splitlines() if line.startswith(f"| `{package}`")]

    assert version in row


@pytest.mark.parametrize("recording", WITHOUT, ids=str)
def test_where_content_is_off_that_is_said(recording: Recording) -> None:
    [samples] = recording.samples()

    assert samples.outcome == "no_sample"
    assert str(samples.reason).startswith("content is not on the spans (")


pytest.importorskip("opentelemetry.instrumentation.genai.openai")


@pytest.mark.parametrize("form", [form for form in FORMS if form != SPANS])
def test_content_in_log_records_gives_the_samples_of_content_on_spans(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = {}
    with OpenAIServer(answer) as server:
        for place in (SPANS, form):
            monkeypatch.setenv(SAMPLES_ENV, str(tmp_path / place))
            run(place, server.url)
            samples[place] = sorted((tmp_path / place).read_text().splitlines())

    assert len(samples[SPANS]) == SAMPLES
    assert samples[form] == samples[SPANS]


OLD = Samples(single_turn=SingleTurnSample(user_input="q", response="a", retrieved_contexts=["c"]))


def test_each_unit_whose_sample_changed_is_named_with_the_fields() -> None:
    new = replace(OLD, single_turn=SingleTurnSample(user_input="q", response="b"))

    assert changes([OLD, new], [OLD, OLD]) == ["unit 2: response and retrieved_contexts"]


def test_a_unit_without_a_sample_or_without_a_unit_to_compare_is_a_change() -> None:
    assert changes([Samples(outcome=Outcome.NO_SAMPLE)], [OLD]) == ["unit 1: no_sample, not a sample"]
    assert changes([], [OLD]) == ["0 units, not 1"]


def test_the_same_samples_are_no_change() -> None:
    assert changes([OLD], [OLD]) == []
