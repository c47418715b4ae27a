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
        "what the span is: `chat`, `retrieval`, `execute_tool`, `invoke_agent` …",
    ),
    "PROVIDER_NAME": ("string", f"{_MODEL}, {_SUMS}", "the model's provider; on instruments, the judge's"),
    "CONVERSATION_ID": ("string", f"captured spans, {_EVALUATION}, {_EVENT}", "the session or thread, as redacted"),
    "WORKFLOW_NAME": ("string", f"root, {_EVALUATION}, {_EVENT}, {_SUMS}", "the name of the first chain"),
    "AGENT_NAME": ("string", f"agent span, {_MODEL}, {_EVALUATION}, {_EVENT}, {_SUMS}", "the agent's name"),
    "REQUEST_MODEL": (
        "string",
        f"{_MODEL}, {_EVALUATION}, {_SUMS}",
        "the model that was asked; on an evaluation span the judge's",
    ),
    "REQUEST_TEMPERATURE": ("double", _MODEL, "as it was asked for"),
    "REQUEST_MAX_TOKENS": ("int", _MODEL, "as it was asked for"),
    "RESPONSE_MODEL": ("string", _MODEL, "the model that answered"),
    "RESPONSE_ID": ("string", f"{_MODEL}, {_EVENT}", "the provider's id of the answer"),
    "RESPONSE_FINISH_REASONS": ("string[]", _MODEL, "why the model stopped, by answer"),
    "RESPONSE_TIME_TO_FIRST_CHUNK": ("double", _MODEL, "seconds until a stream began"),
    "USAGE_INPUT_TOKENS": ("int", _MODEL, "tokens read"),
    "USAGE_OUTPUT_TOKENS": ("int", _MODEL, "tokens written"),
    "USAGE_CACHE_READ_INPUT_TOKENS": ("int", _MODEL, "of the tokens read, those from the provider's cache"),
    "USAGE_CACHE_WRITE_INPUT_TOKENS": ("int", _MODEL, "of the tokens read, those written to its cache"),
    "USAGE_CACHE_CREATION_INPUT_TOKENS": ("int", _MODEL, ""),
    "USAGE_REASONING_OUTPUT_TOKENS": ("int", _MODEL, "of the tokens written, those of reasoning"),
    "TOKEN_TYPE": ("string", "instruments of the application's models", "`input` or `output`"),
    "JUDGE_TOKEN_TYPE": ("string", _SUMS, ""),
    "TOOL_NAME": ("string", _TOOL, "the tool's name"),
    "TOOL_CALL_ID": ("string", _TOOL, "the id that the model gave the call"),
    "PROMPT_VERSION": (
        "string",
        f"captured spans, {_EVALUATION}, {_EVENT}",
        "of the application's prompt, where the run's metadata has one",
    ),
    "ERROR_TYPE": ("string", f"captured spans, {_EVALUATION}, {_EVENT}, {_SUMS}", "class or kind of what failed"),
    "EXCEPTION_TYPE": ("string", "the event `exception` of a span, read", ""),
    "EXCEPTION_MESSAGE": ("string", "the event `exception` of a span, read", ""),
    "SERVICE_NAME": ("string", "resource", ""),
    "INPUT_MESSAGES": ("string (JSON)", f"root, agent span, {_MODEL}", "what came in"),
    "OUTPUT_MESSAGES": ("string (JSON)", f"root, agent span, {_MODEL}", "what was answered"),
    "SYSTEM_INSTRUCTIONS": ("string (JSON)", _MODEL, "what stood before the messages"),
    "TOOL_DEFINITIONS": ("string (JSON)", _MODEL, "tools that the model might call, if a metric reads them"),
    "TOOL_CALL_ARGUMENTS": ("string (JSON)", _TOOL, "what the tool was given"),
    "TOOL_CALL_RESULT": ("string (JSON)", _TOOL, "what it gave back"),
    "RETRIEVAL_QUERY": ("string", _RETRIEVER, "what was searched for"),
    "RETRIEVAL_DOCUMENTS": ("string (JSON)", f"{_RETRIEVER}, {_TOOL}", "what was found"),
    "INPUT_VALUE": ("string (JSON)", "root", ""),
    "OUTPUT_VALUE": ("string (JSON)", "root", "OpenInference: its output, likewise"),
    "OPENINFERENCE_DOCUMENTS": ("string, double", f"{_RETRIEVER}, {_TOOL}", ""),
    "REFERENCES": ("string (JSON)", "root", ""),
    "HISTORY": ("string (JSON)", "root", ""),
    # scores
    "EVALUATION_NAME": ("string", _RESULT, "the metric"),
    "EVALUATION_SCORE_VALUE": ("double", f"{_EVALUATION}, {_EVENT}", "the score, on the metric's own scale"),
    "EVALUATION_SCORE_LABEL": ("string", _RESULT, "`pass` or `fail`; for a category its word"),
    "EVALUATION_TARGET": ("string", f"{_EVALUATION}, {_EVENT}", ""),
    "EVALUATION_EXPLANATION": ("string", f"{_EVALUATION}, {_EVENT}", "why; it quotes, and is content"),
    "OPENINFERENCE_KIND": (
        "string",
        "every span",
        "`LLM`, `RETRIEVER`, `TOOL`, `AGENT`, `CHAIN`; `EVALUATOR` on an evaluation span",
    ),
    "OPENINFERENCE_EVALUATION": ("string, double", _EVALUATION, ""),
    "SCORE": ("double", _BOTH, "followed by the metric: its score, on the metric's own scale"),
    "LABEL": ("string", _BOTH, "followed by the metric: `pass` or `fail`; for a category its word"),
    "PROBABILITY": ("double", _BOTH, "followed by the metric: with which probability it took the unit, (0, 1]"),
    "VERDICT": ("string", _BOTH, "`fail` where any label of it is, else `pass`"),
    "STATUS": ("string", _UNIT, "`scored`, `partial`, `pending`, `not_sampled`, `not_scored` or `delegated`"),
    "PENDING_REASON": ("string", _UNIT, ""),
    "FORWARDED_UNIT": (
        "boolean, string",
        "copies for the process that scores",
        "true on the resource; on a span the id of its unit's root",
    ),
    "CONTENT_CUT": ("bool", "copies for the process that scores", ""),
    "SAMPLING_DECISION": ("string", "the root of such a copy", "followed by a metric that took it: threshold and rule"),
    "METRIC_OUTCOME": ("string", _UNIT, ""),
    "LEFT_OUT": ("double", _BOTH, ""),
    "METADATA": ("string, int, double, bool", _UNIT, ""),
    "RUN_STEP_ERROR": ("bool", _UNIT, ""),
    "RUN_CACHED": ("bool", "model span", ""),
    "RUN_END": ("string", _UNIT, "`completed`, `abandoned`, `cancelled` or `interrupted`"),
    "SAMPLE_SOURCE": ("string", _UNIT, ""),
    "UNUSED_DOCUMENTS": ("int", _UNIT, ""),
    "IMAGES_LEFT_OUT": ("int", _UNIT, ""),
    "SCORED_REQUEST_MODEL": ("string", f"{_EVALUATION}, {_EVENT}", ""),
    "METRIC_VERSION": ("string", _EVALUATION, "of its prompts, parameters and code"),
    "METRIC_KIND": ("string", f"{_EVALUATION}, {_EVENT}", "`binary`, `ordinal`, `continuous` or `categorical`"),
    "METRIC_DIRECTION": ("string", f"{_EVALUATION}, {_EVENT}", "`higher` or `lower` is better"),
    "METRIC_RANGE": ("double[]", _EVALUATION, "lowest and highest value"),
    "METRIC_CATEGORIES": ("string[]", _EVALUATION, ""),
    "METRIC_PASS_AT": ("double", _EVALUATION, ""),
    "QUALITY": ("double", _EVALUATION, "the score on [0, 1], 1 good"),
    "SAMPLING_RULE": ("string", f"{_UNIT}, {_EVALUATION}", ""),
    "SAMPLING_THRESHOLD": ("string", f"{_EVALUATION}, {_EVENT}", "T, 14 hex digits; the probability is 1 − T / 2⁵⁶"),
    "SAMPLING_PROBABILITY": ("double", _EVENT, "with which the metric took the unit, (0, 1]"),
    "EVALUATOR_ID": ("string", f"{_EVALUATION}, {_EVENT}", ""),
    "EVALUATOR_VERSION": ("string", _RESULT, ""),
    "EVALUATOR_TYPE": ("string", f"{_EVALUATION}, {_EVENT}", ""),
    "SCORE_ID": ("string", _EVALUATION, "the same for the same unit, metric and version, in any process"),
    "SCORE_REVISION": ("int", _EVALUATION, "0; more where it supersedes an earlier one"),
    "SESSION_TURNS": ("int", _EVALUATION, ""),
    "SESSION_END": ("string", _EVALUATION, ""),
    "ANNOTATOR": ("string", f"span of a label, {_EVENT}", ""),
    "FEEDBACK_KEY": ("string", f"{_UNIT}, span of a label, {_EVENT}", ""),
    "EVALUATION_SOURCE": ("string", f"{_BOTH}, {_EVENT}, {_SUMS}", ""),
    "UNIT_KIND": ("string", f"{_BOTH}, {_EVENT}, {_SUMS}", ""),
    "UNIT_NAME": ("string", f"{_BOTH}, {_EVENT}, {_SUMS}", ""),
    "COMPARED": ("string", _SUMS, ""),
    "PARTITION": ("string", _SUMS, "of a topic: its number"),
    "APPLICABLE": ("boolean; string", f"{_RESULT}", ""),
    "OUTCOME": (
        "string",
        f"{_EVALUATION}, {_EVENT}, {_SUMS}",
        "on a score without a value, [how it ended](outcomes.md)",
    ),
    "JUDGE_MODEL": ("string", f"{_EVALUATION}, {_EVENT}", "the model that judged"),
    "JUDGE_INPUT_TOKENS": ("int", _EVALUATION, "tokens that the judge read"),
    "JUDGE_OUTPUT_TOKENS": ("int", _EVALUATION, "tokens that it wrote"),
    "JUDGE_COST_USD": ("double", _EVALUATION, "what that cost, where its price is known"),
    "JUDGE_CALLS_ATTRIBUTE": ("int", _EVALUATION, "questions"),
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
    "JUDGE_DURATION_ATTRIBUTE": ("double", _EVALUATION, "seconds that the judge took, of all questions together"),
    "DEMO_STRETCH": ("string", "root, in `spanscore demo` alone", ""),
    "BUDGET_UNIT": ("string", _SUMS, "of a budget: `usd`, `tokens` or `calls`"),
    "BUDGET_WINDOW": ("string", _SUMS, "of a budget: its window as it is configured, `1h`"),
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
