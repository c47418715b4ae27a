"""What a chat model reports besides its words → GenAI attributes: models, settings, ids, finish reasons, tokens.

Providers report tokens in four places: ``usage_metadata`` on the message (LangChain's own form, preferred),
``llm_output``, ``response_metadata`` and ``generation_info``, each under names of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from spanscore import semconv
from spanscore.codec.snapshot import TakenChoice, TakenGeneration
from spanscore.codec.text import safe_text

__all__ = ["chat_attributes", "finish_reason"]

_OURS = ("lc_run-", "run-")
"""Beginnings of message ids that LangChain makes itself: not the provider's."""
_TOKENS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    semconv.USAGE_INPUT_TOKENS: (
        ("input_tokens",),
        ("prompt_tokens",),
        ("prompt_token_count",),
        ("prompt_eval_count",),
        ("inputTokens",),
        ("input_token_count",),
    ),
    semconv.USAGE_OUTPUT_TOKENS: (
        ("output_tokens",),
        ("completion_tokens",),
        ("candidates_token_count",),
        ("eval_count",),
        ("outputTokens",),
        ("generated_token_count",),
    ),
    semconv.USAGE_CACHE_READ_INPUT_TOKENS: (
        ("input_token_details", "cache_read"),
        ("prompt_tokens_details", "cached_tokens"),
        ("cache_read_input_tokens",),
        ("cached_content_token_count",),
    ),
    semconv.USAGE_CACHE_WRITE_INPUT_TOKENS: (
        ("input_token_details", "cache_creation"),
        ("cache_creation_input_tokens",),
    ),
    semconv.USAGE_REASONING_OUTPUT_TOKENS: (
        ("output_token_details", "reasoning"),
        ("completion_tokens_details", "reasoning_tokens"),
        ("thoughts_token_count",),
    ),
}
"""Attribute → where it stands in a usage report, LangChain's form first, then OpenAI, Anthropic, Google, Ollama, Bedrock."""
_REPORTS = ("token_usage", "usage", "usage_metadata", "amazon-bedrock-invocationMetrics")
_FINISH_KEYS = ("finish_reason", "stop_reason", "stopReason", "done_reason")


def chat_attributes(
    serialized_name: str | None, metadata: Any, invocation_params: Any, generation: Any
) -> dict[str, Any]:
    """Return the attributes of a model's span that quote nothing. Never raises.

    Args:
        serialized_name: the run's name; stands for the provider where nothing else tells (``ChatOpenAI`` → ``openai``).
        metadata: of the run's start; ``ls_*`` keys are LangChain's own.
        invocation_params: of the run's start, as the provider's class names them.
        generation: of ``snapshot_generation``; None = there was no answer.
    """
    run = metadata if isinstance(metadata, Mapping) else {}
    asked = invocation_params if isinstance(invocation_params, Mapping) else {}
    found = {
        semconv.REQUEST_MODEL: _first(_texts(run, "ls_model_name"), _texts(asked, "model", "model_name", "model_id")),
        semconv.PROVIDER_NAME: _first(_texts(run, "ls_provider")) or _provider(serialized_name),
        semconv.REQUEST_TEMPERATURE: _first(_numbers(run, "ls_temperature"), _numbers(asked, "temperature")),
        semconv.REQUEST_MAX_TOKENS: _whole(_first(_numbers(run, "ls_max_tokens"), _numbers(asked, *_MAX_TOKENS))),
        **(_answered(generation) if isinstance(generation, TakenGeneration) else {}),
    }
    return {name: value for name, value in found.items() if value is not None}


_MAX_TOKENS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict")


def finish_reason(choice: TakenChoice) -> str | None:
    """Return why a model stopped, in its provider's word; None where it does not say."""
    _, _, _, reported, info = choice
    reason: str | None = _first(_texts(reported, *_FINISH_KEYS), _texts(info, *_FINISH_KEYS))
    return reason


def _answered(generation: TakenGeneration) -> dict[str, Any]:
    choices, llm_output = generation
    reasons = [reason for choice in choices if (reason := finish_reason(choice)) is not None]
    said = {semconv.RESPONSE_FINISH_REASONS: reasons or None}
    if not choices:
        return {**said, **_tokens([llm_output])}
    _, identity, usage, reported, info = choices[0]
    return {
        **said,
        semconv.RESPONSE_MODEL: _first(
            _texts(reported, "model_name", "model", "model_id", "modelId"), _texts(llm_output, "model_name", "model")
        ),
        semconv.RESPONSE_ID: _first(
            _texts(reported, "id", "request_id"),
            [identity] if isinstance(identity, str) and not identity.startswith(_OURS) else [],
            _texts(llm_output, "id"),
        ),
        **_tokens([usage, llm_output, reported, info]),
    }


def _tokens(places: Iterable[Any]) -> dict[str, Any]:
    """Read one report, the first that knows the input or the output: two of them may count differently."""
    for report in (report for place in places for report in _reports(place)):
        counts = {name: _first(_paths(report, paths)) for name, paths in _TOKENS.items()}
        if counts[semconv.USAGE_INPUT_TOKENS] is not None or counts[semconv.USAGE_OUTPUT_TOKENS] is not None:
            return {name: _whole(count) for name, count in counts.items()}
    return {}


def _reports(place: Any) -> Iterable[Mapping[str, Any]]:
    if not isinstance(place, Mapping):
        return ()
    nested = (place.get(name) for name in _REPORTS)
    return [place, *(report for report in nested if isinstance(report, Mapping))]


def _paths(report: Mapping[str, Any], paths: Iterable[tuple[str, ...]]) -> list[float]:
    found: list[float] = []
    for path in paths:
        place: Any = report
        for key in path[:-1]:
            place = place.get(key) if isinstance(place, Mapping) else None
        found += _numbers(place, path[-1])
    return found


def _texts(place: Any, *keys: str) -> list[str]:
    return [safe_text(value) for value in _values(place, keys) if isinstance(value, str) and value]


def _numbers(place: Any, *keys: str) -> list[float]:
    return [value for value in _values(place, keys) if isinstance(value, (int, float)) and not isinstance(value, bool)]


def _values(place: Any, keys: Iterable[str]) -> list[Any]:
    return [place.get(key) for key in keys] if isinstance(place, Mapping) else []


def _first(*found: list[Any]) -> Any:
    return next((value for values in found for value in values), None)


def _whole(number: float | None) -> int | None:
    try:
        return None if number is None else int(number)
    except (ValueError, OverflowError):  # NaN, infinity
        return None


def _provider(name: str | None) -> str | None:
    """``ChatOpenAI`` → ``openai``: LangChain's own rule for ``ls_provider``."""
    return name.removeprefix("Chat").lower() or None if name and name.startswith("Chat") else None
