"""A chat model's messages → what they say, and why the model stopped. The integration's own parsers are not asked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spanscore.judges.langchain.exchange import Exchange
from spanscore.judges.langchain.usage import UNKNOWN, Tokens, tokens_in

__all__ = ["CUT", "Choice", "at_batch_price", "choices_of", "model_of", "tokens_of"]

CUT = "cut"
_MOST_CHARACTERS = 200_000
"""Of an answer that is read; no verdict is that long."""
_FINISH = ("finish_reason", "stop_reason", "done_reason", "stopReason")
_MODELS = ("model_name", "model")
_BATCH_TIERS = ("flex", "batch")
_CUT = frozenset({"length", "max_tokens", "max_output_tokens", "model_length"})
_DECLINED = frozenset(
    {
        *("content_filter", "content_filtered", "refusal", "guardrail_intervened"),
        *("safety", "blocklist", "prohibited_content", "spii", "recitation"),
    }
)
"""In lower case, of all providers: why a model stopped."""
_TROUBLES = {
    "declined": "the judge declined to answer",
    CUT: "the answer was cut at the most tokens a judge may write",
    "empty": "the answer is empty",
}


class Choice(NamedTuple):
    """One answer of a model.

    Attributes:
        text: at most 200,000 characters.
        finish: why the model stopped, in its provider's word; None where it does not tell.
        trouble: ``declined``, ``cut`` or ``empty``; None for an answer that a verdict may be in.
    """

    text: str
    finish: str | None
    trouble: str | None

    @property
    def why(self) -> str:
        """What is wrong with it, in words."""
        return _TROUBLES.get(self.trouble or "", "")


def choices_of(messages: Sequence[Any], heard: Exchange) -> list[Choice]:
    """Return what the messages of one answer say."""
    raw = heard.said.get("choices")
    told = [one.get("finish_reason") for one in raw if isinstance(one, Mapping)] if isinstance(raw, list) else []
    if len(told) != len(messages):
        told = [_finish(message) for message in messages]
    return [_choice(message, finish) for message, finish in zip(messages, told, strict=True)]


def tokens_of(messages: Sequence[Any], heard: Exchange) -> Tokens:
    """Return what an answer took, all its choices together."""
    told = tokens_in(getattr(messages[0], "usage_metadata", None)) if messages else UNKNOWN
    return told if any(told) else heard.tokens


def model_of(messages: Sequence[Any], heard: Exchange) -> str | None:
    """Return the model that answered, as its provider names it; None where it does not tell."""
    told = _told_beside(messages, heard)
    return next((str(one[name]) for one in told for name in _MODELS if one.get(name)), None)


def at_batch_price(messages: Sequence[Any], heard: Exchange) -> bool:
    """Whether the provider bills the answer at its price for batches, as its service tier says."""
    return any(one.get("service_tier") in _BATCH_TIERS for one in _told_beside(messages, heard))


def _told_beside(messages: Sequence[Any], heard: Exchange) -> list[Mapping[str, Any]]:
    """Return what came with the answer: as it went over the wire, and as the integration has it."""
    return [heard.said, *(getattr(message, "response_metadata", None) or {} for message in messages)]


def _choice(message: Any, finish: Any) -> Choice:
    text, word = _text(message), str(finish).lower()
    trouble = None
    if _is_refusal(message) or word in _DECLINED:
        trouble = "declined"
    elif word in _CUT:
        trouble = CUT
    elif not text.strip():
        trouble = "empty"
    return Choice(text, None if finish is None else str(finish), trouble)


def _text(message: Any) -> str:
    """Return a message's tool calls' arguments as JSON, one to a line, else its text."""
    called = "\n".join(_called(message))
    return (called or "".join(_written(getattr(message, "content", message))))[:_MOST_CHARACTERS]


def _called(message: Any) -> Iterator[str]:
    for call in getattr(message, "tool_calls", None) or ():
        yield json.dumps(call["args"], ensure_ascii=False)
    for call in getattr(message, "invalid_tool_calls", None) or ():
        if call.get("args"):
            yield str(call["args"])


def _written(content: Any) -> Iterator[str]:
    if not isinstance(content, list):
        yield str(content)
        return
    for block in content:  # a thought is a block without "text"
        yield block if isinstance(block, str) else str(block.get("text") or "")


def _is_refusal(message: Any) -> bool:
    """Whether the model used the field that is for refusals."""
    if (getattr(message, "additional_kwargs", None) or {}).get("refusal"):
        return True
    content = getattr(message, "content", None)
    return isinstance(content, list) and any(
        isinstance(one, Mapping) and one.get("type") == "refusal" for one in content
    )


def _finish(message: Any) -> Any:
    metadata = getattr(message, "response_metadata", None) or {}
    incomplete = metadata.get("incomplete_details")  # of OpenAI's Responses
    if isinstance(incomplete, Mapping) and incomplete.get("reason"):
        return incomplete["reason"]
    return next((metadata[name] for name in _FINISH if metadata.get(name)), None)
