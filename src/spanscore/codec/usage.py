"""What a chat model reports besides its words → GenAI attributes: models, settings, ids, finish reasons, tokens.

Providers report tokens in four places: ``usage_metadata`` on the message (LangChain's own form, preferred),
``llm_output``, ``response_metadata`` and ``generation_info``, each under names of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from spanscore import semconv
from spanscore.codec.snapshot_types import ChoiceSnapshot, GenerationSnapshot
from spanscore.codec.text import fits_wire, plain_dict, plain_number, safe_text
from spanscore.model.foreign import is_a

__all__ = ["chat_attributes", "finish_reason"]

_OURS = ("lc_run-", "run-")
"""Beginnings of message ids that LangChain makes itself: not the provider's."""
_Place: TypeAlias = str | tuple[str, str]
"""A key, or that of a part and one in it."""
_TOKENS: Mapping[str, tuple[_Place, ...]] = {
    semconv.USAGE_INPUT_TOKENS: (
        "input_tokens",
        "prompt_tokens",
        "prompt_token_count",
        "prompt_eval_count",
        "inputTokens",
        "input_token_count",
    ),
    semconv.USAGE_OUTPUT_TOKENS: (
        "output_tokens",
        "completion_tokens",
        "candidates_token_count",
        "eval_count",
        "outputTokens",
        "generated_token_count",
    ),
    semconv.USAGE_CACHE_READ_INPUT_TOKENS: (
        ("input_token_details", "cache_read"),
        ("prompt_tokens_details", "cached_tokens"),
        "cache_read_input_tokens",
        "cached_content_token_count",
    ),
    semconv.USAGE_CACHE_WRITE_INPUT_TOKENS: (("input_token_details", "cache_creation"), "cache_creation_input_tokens"),
    semconv.USAGE_REASONING_OUTPUT_TOKENS: (
        ("output_token_details", "reasoning"),
        ("completion_tokens_details", "reasoning_tokens"),
        "thoughts_token_count",
    ),
}
"""Attribute → where it stands in a usage report, LangChain's form first, then OpenAI, Anthropic, Google, Ollama, Bedrock."""
_RANKS: Mapping[_Place, tuple[str, int]] = {
    place: (name, rank) for name, places in _TOKENS.items() for rank, place in enumerate(places)
}
"""Where a count may stand → the attribute that it becomes, and how far back in that one's line it stands."""
_PARTS: Mapping[str, tuple[str, ...]] = {
    outer: tuple(place[1] for place in _RANKS if isinstance(place, tuple) and place[0] == outer)
    for outer in [place[0] for place in _RANKS if isinstance(place, tuple)]
}
"""Part of a report → what is read in it."""
_REPORTS = ("token_usage", "usage", "usage_metadata", "amazon-bedrock-invocationMetrics")
_FINISH_KEYS = ("finish_reason", "stop_reason", "stopReason", "done_reason")


def chat_attributes(
    serialized_name: str | None, metadata: Any, invocation_params: Any, generation: Any
) -> dict[str, Any]:
    """Return the attributes of a model's span that quote nothing. Never raises.

    Called for every recorded model run, sampled or not: plain look-ups, no search where the usual place has it.

    Args:
        serialized_name: the run's name; stands for the provider where nothing else tells (``ChatOpenAI`` → ``openai``).
        metadata: of the run's start; ``ls_*`` keys are LangChain's own.
        invocation_params: of the run's start, as the provider's class names them.
        generation: of ``snapshot_generation``; None = there was no answer.
    """
    run, asked = _dict(metadata), _dict(invocation_params)
    temperature, tokens = _first_number(run, ("ls_temperature",)), _first_number(run, ("ls_max_tokens",))
    found: dict[str, Any] = {
        semconv.REQUEST_MODEL: _first_text(run, ("ls_model_name",)) or _first_text(asked, _REQUEST_MODELS),
        semconv.PROVIDER_NAME: _first_text(run, ("ls_provider",)) or _provider(serialized_name),
        semconv.REQUEST_TEMPERATURE: _first_number(asked, ("temperature",)) if temperature is None else temperature,
        semconv.REQUEST_MAX_TOKENS: _whole(_first_number(asked, _MAX_TOKENS) if tokens is None else tokens),
        semconv.AGENT_NAME: _first_text(run, ("lc_agent_name",)) or _subgraph(run.get("langgraph_checkpoint_ns")),
    }
    if is_a(generation, GenerationSnapshot):
        _add_answer(found, generation)
        found[semconv.USAGE_CACHE_CREATION_INPUT_TOKENS] = found.get(semconv.USAGE_CACHE_WRITE_INPUT_TOKENS)
    return {name: value for name, value in found.items() if value is not None}


def _subgraph(namespace: Any) -> str | None:
    """Return the node as which the graph of a run stands in another (``math_expert:…|agent:…``): an agent's name, mostly."""
    above = namespace.split("|")[:-1] if isinstance(namespace, str) else ()
    return safe_text(above[-1].partition(":")[0]) if above else None


_MAX_TOKENS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict")
_REQUEST_MODELS = ("model", "model_name", "model_id")
_RESPONSE_MODELS = ("model_name", "model", "model_id", "modelId")
_RESPONSE_IDS = ("id", "request_id")


def finish_reason(choice: ChoiceSnapshot) -> str | None:
    """Return why a model stopped, in its provider's word; None where it does not say."""
    _, _, _, reported, info = choice
    return _first_text(_dict(reported), _FINISH_KEYS) or _first_text(_dict(info), _FINISH_KEYS)


def _add_answer(found: dict[str, Any], generation: GenerationSnapshot) -> None:
    choices, llm_output = generation
    if not choices:
        _add_tokens(found, [llm_output])
        return
    _, identity, usage, reported, info = choices[0]
    said, output = _dict(reported), _dict(llm_output)
    reasons = [reason for choice in choices if (reason := finish_reason(choice)) is not None]
    found[semconv.RESPONSE_FINISH_REASONS] = reasons or None
    found[semconv.RESPONSE_MODEL] = _first_text(said, _RESPONSE_MODELS) or _first_text(output, _RESPONSE_MODELS)
    own_id = safe_text(identity) if is_a(identity, str) and not identity.startswith(_OURS) else None
    found[semconv.RESPONSE_ID] = _first_text(said, _RESPONSE_IDS) or own_id or _first_text(output, _RESPONSE_IDS)
    if _is_cached(usage):
        found[semconv.RUN_CACHED] = True
    else:
        _add_tokens(found, [usage, llm_output, reported, info])


def _is_cached(usage: Any) -> bool:
    """Whether LangChain's cache answered: it sets the cost in ``usage_metadata`` to 0 then (seen in langchain-core 1.8.3)."""
    cost = _dict(usage).get("total_cost")
    return type(cost) is int and cost == 0


def _add_tokens(found: dict[str, Any], places: Iterable[Any]) -> None:
    """Read one report, the first that knows the input or the output: two of them may count differently."""
    for report in filter(None, _reports(places)):
        counts = _counts(report)
        if semconv.USAGE_INPUT_TOKENS in counts or semconv.USAGE_OUTPUT_TOKENS in counts:
            found |= {name: _whole(counts[name][1]) for name in _TOKENS if name in counts}
            return


def _counts(report: dict[str, Any]) -> dict[str, tuple[int, float]]:
    """Return what a report counts, each from the first place in line: by its own keys, as most of the places are not there."""
    counts: dict[str, tuple[int, float]] = {}
    for key, value in report.copy().items():  # it may be the application's, who goes on
        if type(key) is not str or value is None:
            continue
        if key in _RANKS:
            _rank(counts, key, value)
        elif key in _PARTS:
            part = _dict(value)
            for inner in _PARTS[key]:
                _rank(counts, (key, inner), part.get(inner))
    return counts


def _rank(counts: dict[str, tuple[int, float]], place: _Place, value: Any) -> None:
    name, rank = _RANKS[place]
    if (
        value is not None
        and (name not in counts or rank < counts[name][0])
        and (count := plain_number(value)) is not None
    ):
        counts[name] = rank, count


def _reports(places: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for outer in map(_dict, places):
        yield outer
        yield from (_dict(outer.get(name)) for name in _REPORTS)


def _first_number(place: dict[str, Any], keys: tuple[str, ...]) -> float | None:
    for key in keys if place else ():
        value = place.get(key)
        if value is not None and (count := plain_number(value)) is not None:  # most keys are not there
            return count
    return None


def _dict(place: Any) -> dict[str, Any]:
    if type(place) is dict:
        return place
    if place is None:  # an abstract class is asked for a microsecond
        return {}
    return plain_dict(place) if is_a(place, dict) else {}


def _first_text(place: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    for key in keys if place else ():  # many report nothing at all
        value = place.get(key)
        if value is None:  # most keys are not there
            continue
        if type(value) is str and value.isascii():  # most texts are such
            if value:
                return value
        elif is_a(value, str) and (text := safe_text(value)):
            return text
    return None


def _whole(number: float | None) -> int | None:
    if number is None or type(number) is int:
        return number
    try:
        return whole if fits_wire(whole := int(number)) else None
    except (ValueError, OverflowError):  # NaN, infinity
        return None


def _provider(name: str | None) -> str | None:
    """``ChatOpenAI`` → ``openai``: LangChain's own rule for ``ls_provider``."""
    return safe_text(name.removeprefix("Chat").lower()) or None if name and name.startswith("Chat") else None
