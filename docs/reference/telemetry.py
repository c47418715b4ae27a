"""``semconv`` → the generated part of telemetry.md: each name, its type, and its span or instrument.

The constant of an attribute documents its meaning, if its name does not. This module has its type and its place.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from docs.reference.pages import table

from spanscore import semconv
from spanscore import semconv as attributes
from spanscore import semconv as instruments
from spanscore.cli._schema import plain
from spanscore.outputs.instrument_table import INSTRUMENTS, Instrument

__all__ = ["ATTRIBUTES", "telemetry"]

_MODEL, _TOOL, _RETRIEVER = "model span", "tool span", "retriever span"
_UNIT, _EVALUATION, _EVENT = "the unit's span", "evaluation span", "event"
_BOTH = f"{_UNIT}, {_EVALUATION}"
_RESULT = f"{_EVALUATION}, {_EVENT}, instruments"
_SUMS = "instruments"

ATTRIBUTES: Final[Mapping[str, tuple[str, str, str]]] = {
    # captured spans
    "OPERATION_NAME": (
        "string",
        "every span",
        "Kind of the span: `chat`, `retrieval`, `execute_tool`, `invoke_agent` …",
    ),
    "PROVIDER_NAME": ("string", f"{_MODEL}, {_SUMS}", "Provider of the model; on instruments, the judge's provider."),
    "CONVERSATION_ID": (
        "string",
        f"captured spans, {_EVALUATION}, {_EVENT}",
        "Id of the session or thread, as redacted.",
    ),
    "WORKFLOW_NAME": ("string", f"root, {_EVALUATION}, {_EVENT}, {_SUMS}", "Name of the first chain."),
    "AGENT_NAME": ("string", f"agent span, {_MODEL}, {_EVALUATION}, {_EVENT}, {_SUMS}", "Name of the agent."),
    "REQUEST_MODEL": (
        "string",
        f"{_MODEL}, {_EVALUATION}, {_SUMS}",
        "Model that was requested; on an evaluation span, the judge's model.",
    ),
    "REQUEST_TEMPERATURE": ("double", _MODEL, "Temperature that was requested."),
    "REQUEST_MAX_TOKENS": ("int", _MODEL, "Maximum number of output tokens that was requested."),
    "RESPONSE_MODEL": ("string", _MODEL, "Model that answered."),
    "RESPONSE_ID": ("string", f"{_MODEL}, {_EVENT}", "The provider's id of the answer."),
    "RESPONSE_FINISH_REASONS": ("string[]", _MODEL, "For each answer: why the model stopped."),
    "RESPONSE_TIME_TO_FIRST_CHUNK": (
        "double",
        _MODEL,
        "Seconds from the request to the first part of a streamed answer.",
    ),
    "USAGE_INPUT_TOKENS": ("int", _MODEL, "Number of tokens that the model read."),
    "USAGE_OUTPUT_TOKENS": ("int", _MODEL, "Number of tokens that the model wrote."),
    "USAGE_CACHE_READ_INPUT_TOKENS": ("int", _MODEL, "Number of tokens that the model read from the provider's cache."),
    "USAGE_CACHE_WRITE_INPUT_TOKENS": (
        "int",
        _MODEL,
        "Number of read tokens that were written to the provider's cache.",
    ),
    "USAGE_CACHE_CREATION_INPUT_TOKENS": ("int", _MODEL, ""),
    "USAGE_REASONING_OUTPUT_TOKENS": ("int", _MODEL, "Number of tokens that the model wrote while reasoning."),
    "TOKEN_TYPE": ("string", "instruments of the application's models", "Kind of the tokens: `input` or `output`."),
    "JUDGE_TOKEN_TYPE": ("string", _SUMS, ""),
    "TOOL_NAME": ("string", _TOOL, "Name of the tool."),
    "TOOL_CALL_ID": ("string", _TOOL, "Id that the model gave to the call."),
    "PROMPT_VERSION": (
        "string",
        f"captured spans, {_EVALUATION}, {_EVENT}",
        "Version of the application's prompt, if the run's metadata has it.",
    ),
    "ERROR_TYPE": (
        "string",
        f"captured spans, {_EVALUATION}, {_EVENT}, {_SUMS}",
        "Class of the exception, or kind of the error.",
    ),
    "EXCEPTION_TYPE": ("string", "the event `exception` of a span, read", ""),
    "EXCEPTION_MESSAGE": ("string", "the event `exception` of a span, read", ""),
    "SERVICE_NAME": ("string", "resource", ""),
    "INPUT_MESSAGES": ("string (JSON)", f"root, agent span, {_MODEL}", "Messages that the run or the model got."),
    "OUTPUT_MESSAGES": ("string (JSON)", f"root, agent span, {_MODEL}", "Messages that the run or the model returned."),
    "SYSTEM_INSTRUCTIONS": ("string (JSON)", _MODEL, "The system prompt."),
    "TOOL_DEFINITIONS": (
        "string (JSON)",
        _MODEL,
        "Definitions of the tools that the model may call, if a metric reads them.",
    ),
    "TOOL_CALL_ARGUMENTS": ("string (JSON)", _TOOL, "Arguments of the tool call."),
    "TOOL_CALL_RESULT": ("string (JSON)", _TOOL, "Result of the tool call."),
    "RETRIEVAL_QUERY": ("string", _RETRIEVER, "Query of the retriever."),
    "RETRIEVAL_DOCUMENTS": ("string (JSON)", f"{_RETRIEVER}, {_TOOL}", "Documents that were retrieved."),
    "INPUT_VALUE": ("string (JSON)", "root", ""),
    "OUTPUT_VALUE": (
        "string (JSON)",
        "root",
        "OpenInference: the output of a root that is not a conversation, as JSON.",
    ),
    "OPENINFERENCE_DOCUMENTS": ("string, double", f"{_RETRIEVER}, {_TOOL}", ""),
    "REFERENCES": ("string (JSON)", "root", ""),
    "HISTORY": ("string (JSON)", "root", ""),
    # scores
    "EVALUATION_NAME": ("string", _RESULT, "Name of the metric."),
    "EVALUATION_SCORE_VALUE": ("double", f"{_EVALUATION}, {_EVENT}", "Score on the metric's own scale."),
    "EVALUATION_SCORE_LABEL": ("string", _RESULT, "`pass`, `fail` or the name of a category."),
    "EVALUATION_TARGET": ("string", f"{_EVALUATION}, {_EVENT}", ""),
    "EVALUATION_EXPLANATION": (
        "string",
        f"{_EVALUATION}, {_EVENT}",
        "Reason for the score. It may quote the sample, so it is exported only with content.",
    ),
    "OPENINFERENCE_KIND": (
        "string",
        "every span",
        "OpenInference's kind: `LLM`, `RETRIEVER`, `TOOL`, `AGENT`, `CHAIN`; on an evaluation span, `EVALUATOR`.",
    ),
    "OPENINFERENCE_EVALUATION": ("string, double", _EVALUATION, ""),
    "SCORE": ("double", _BOTH, "Followed by the metric: the score on the metric's own scale."),
    "LABEL": ("string", _BOTH, "Followed by the metric: `pass`, `fail` or the name of a category."),
    "PROBABILITY": ("double", _BOTH, "Followed by the metric: the probability with which it sampled the unit, (0, 1]."),
    "VERDICT": (
        "string",
        _BOTH,
        "`fail` if any label of the unit is `fail`, otherwise `pass`; missing if the unit has neither label.",
    ),
    "STATUS": (
        "string",
        _UNIT,
        "`scored`; `partial` (a sampled metric has a score, another has none); `pending` (exported before all scores arrived); "
        "`not_sampled`; `not_scored` (no sampled metric has a score); or `delegated` (another process scores the unit).",
    ),
    "PENDING_REASON": ("string", _UNIT, ""),
    "FORWARDED_UNIT": (
        "bool, string",
        "copies of spans for remote scoring",
        "True on the resource of the copies; on a span, the id of its unit's root.",
    ),
    "CONTENT_CUT": ("bool", "copies of spans for remote scoring", ""),
    "SAMPLING_DECISION": (
        "string",
        "root of a copied unit",
        "Followed by a metric that sampled the unit: the threshold (14 hex digits) and the rule.",
    ),
    "METRIC_OUTCOME": ("string", _UNIT, ""),
    "LEFT_OUT": ("double", _BOTH, ""),
    "METADATA": ("string, int, double, bool", _UNIT, ""),
    "RUN_STEP_ERROR": ("bool", _UNIT, ""),
    "RUN_CACHED": ("bool", "model span", ""),
    "RUN_END": ("string", _UNIT, "End of the run: `completed`, `abandoned`, `cancelled` or `interrupted`."),
    "SAMPLE_SOURCE": ("string", _UNIT, ""),
    "UNUSED_DOCUMENTS": ("int", _UNIT, ""),
    "IMAGES_LEFT_OUT": ("int", _UNIT, ""),
    "SCORED_REQUEST_MODEL": ("string", f"{_EVALUATION}, {_EVENT}", ""),
    "METRIC_VERSION": ("string", _EVALUATION, "Version of the metric's prompts, parameters and code."),
    "METRIC_KIND": (
        "string",
        f"{_EVALUATION}, {_EVENT}",
        "Kind of the metric's scale: `binary`, `ordinal`, `continuous` or `categorical`.",
    ),
    "METRIC_DIRECTION": (
        "string",
        f"{_EVALUATION}, {_EVENT}",
        "Better direction of the metric's scale: `higher` or `lower`.",
    ),
    "METRIC_RANGE": ("double[]", _EVALUATION, "Lowest and highest value of the metric's scale."),
    "METRIC_CATEGORIES": ("string[]", _EVALUATION, ""),
    "METRIC_PASS_AT": ("double", _EVALUATION, ""),
    "QUALITY": ("double", _EVALUATION, "The score on [0, 1]; 1 is good."),
    "SAMPLING_RULE": ("string", f"{_UNIT}, {_EVALUATION}", ""),
    "SAMPLING_THRESHOLD": (
        "string",
        f"{_EVALUATION}, {_EVENT}",
        "Threshold T of the metric's sampling, 14 hex digits; the probability is 1 − T / 2⁵⁶.",
    ),
    "SAMPLING_PROBABILITY": ("double", _EVENT, "Probability with which the metric sampled the unit, (0, 1]."),
    "EVALUATOR_ID": ("string", f"{_EVALUATION}, {_EVENT}", ""),
    "EVALUATOR_VERSION": ("string", _RESULT, ""),
    "EVALUATOR_TYPE": ("string", f"{_EVALUATION}, {_EVENT}", ""),
    "SCORE_ID": ("string", _EVALUATION, "Id of the score: equal for the same unit, metric and version in any process."),
    "SCORE_REVISION": (
        "int",
        _EVALUATION,
        "0 for the first score; a higher number if the score replaces an earlier score.",
    ),
    "SESSION_TURNS": ("int", _EVALUATION, ""),
    "SESSION_END": ("string", _EVALUATION, ""),
    "ANNOTATOR": ("string", f"span of a label, {_EVENT}", ""),
    "FEEDBACK_KEY": ("string", f"{_UNIT}, span of a label, {_EVENT}", ""),
    "EVALUATION_SOURCE": ("string", f"{_BOTH}, {_EVENT}, {_SUMS}", ""),
    "UNIT_KIND": ("string", f"{_BOTH}, {_EVENT}, {_SUMS}", ""),
    "UNIT_NAME": ("string", f"{_BOTH}, {_EVENT}, {_SUMS}", ""),
    "COMPARED": ("string", _SUMS, ""),
    "PARTITION": ("string", _SUMS, "Number of the Kafka partition."),
    "APPLICABLE": ("bool, string", f"{_RESULT}", ""),
    "OUTCOME": (
        "string",
        f"{_EVALUATION}, {_EVENT}, {_SUMS}",
        "Outcome of a score without a value: [how the evaluation ended](outcomes.md).",
    ),
    "JUDGE_MODEL": ("string", f"{_EVALUATION}, {_EVENT}", "Model of the judge."),
    "JUDGE_INPUT_TOKENS": ("int", _EVALUATION, "Number of tokens that the judge read for the score."),
    "JUDGE_OUTPUT_TOKENS": ("int", _EVALUATION, "Number of tokens that the judge wrote for the score."),
    "JUDGE_COST_USD": ("double", _EVALUATION, "Cost of the judge for the score in USD, if the price is known."),
    "JUDGE_CALLS_ATTRIBUTE": ("int", _EVALUATION, "Number of questions to the judge."),
    "JUDGE_CACHED_CALLS": ("int", _EVALUATION, ""),
    "JUDGE_INPUT_TRUNCATED_RATIO": ("double", _EVALUATION, ""),
    "JUDGE_IMAGES_NOT_SHOWN": ("int", f"{_EVALUATION}, judge span", ""),
    "JUDGE_SELF_CONTRADICTIONS_ATTRIBUTE": ("int", _EVALUATION, ""),
    "JURY_SIZE": ("int", _EVALUATION, ""),
    "JURY_MODELS": ("string[]", _EVALUATION, ""),
    "JURY_VALUES": ("double[]", _EVALUATION, ""),
    "JURY_LEFT_OUT": ("string[]", _EVALUATION, ""),
    "JURY_DISAGREEMENT": ("double", _EVALUATION, ""),
    "JUDGE_STEP": ("string", "judge span", ""),
    "JUDGE_DURATION_ATTRIBUTE": ("double", _EVALUATION, "Duration of all questions to the judge together, in seconds."),
    "DEMO_STRETCH": ("string", "root, in `spanscore demo` alone", ""),
    "BUDGET_UNIT": ("string", _SUMS, "Unit of a budget: `usd`, `tokens` or `calls`."),
    "BUDGET_WINDOW": ("string", _SUMS, "Window of a budget as it is configured: `1h`."),
}
"""Constant → type on the wire, place, and meaning if its constant has none."""

_OF_MODELS: Final = {
    semconv.CLIENT_TOKEN_USAGE: Instrument("histogram", "{token}", "Standard: tokens of the application's model runs"),
    semconv.CLIENT_OPERATION_DURATION: Instrument(
        "histogram", "s", "Standard: durations of the application's model runs"
    ),
}


def telemetry() -> str:
    """Return every attribute, and every instrument."""
    content = [name for name in ATTRIBUTES if semconv.is_content(getattr(semconv, name))]
    standard = [name for name in ATTRIBUTES if name not in content and not _is_ours(name)]
    ours = [name for name in ATTRIBUTES if name not in content and _is_ours(name)]
    instruments = [
        [f"`{name}`", one.kind, f"`{one.unit}`" if one.unit else "", one.description]
        for name, one in {**INSTRUMENTS, **_OF_MODELS}.items()
    ]
    return "\n\n".join(
        [
            "## Attributes: standard",
            _attributes(standard),
            "## Attributes: ours",
            _attributes(ours),
            "## Attributes: content",
            "Written only where content is exported (`capture.content`).",
            _attributes(content),
            "## Instruments",
            "The weight of a score is w = 1 / the probability with which the metric sampled the unit.",
            table(["instrument", "kind", "unit", "what it counts"], instruments),
        ]
    )


def _is_ours(name: str) -> bool:
    return str(getattr(semconv, name)).startswith("spanscore.")


def _attributes(names: list[str]) -> str:
    notes = _notes()
    rows = []
    for name in names:
        kind, place, meaning = ATTRIBUTES[name]
        wire = getattr(semconv, name)
        written = f"`{wire}…`" if wire.endswith(".") else f"`{wire}`"
        rows.append([written, kind, place, meaning or notes[name]])
    return table(["attribute", "type", "where", "what it is"], rows)


def _notes() -> dict[str, str]:
    """Return constant → the note below it."""
    body = [line for part in (attributes, instruments) for line in ast.parse(inspect.getsource(part)).body]
    return {
        above.target.id: plain(note.value.value)
        for above, note in pairwise(body)
        if isinstance(above, ast.AnnAssign) and isinstance(above.target, ast.Name)
        if isinstance(note, ast.Expr) and isinstance(note.value, ast.Constant) and isinstance(note.value.value, str)
    }
