"""Every recording gives the samples of our own capture of the same program, except for data that its writer omits."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.traces.record import INSTRUMENTATIONS
from tests.traces.recordings import RECORDINGS, Recording, differences

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
