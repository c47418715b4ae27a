"""The judge calls and tokens of one score of a metric, counted with the offline judge on a fixed sample.

The sample is a short RAG exchange (a question, three contexts, an answer of three sentences, a reference) or a conversation
with one tool call. Longer contexts cost more: ``samples_with`` makes contexts of a given length.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

from spanscore.core import loop
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.sample import (
    AIMessage,
    HumanMessage,
    Message,
    MultiTurnSample,
    Sample,
    SingleTurnSample,
    TokenUsage,
    ToolCall,
    ToolDefinition,
    ToolMessage,
)
from spanscore.errors import ConfigurationError, JudgeError
from spanscore.judges.effects.prefix import CACHED_FROM
from spanscore.judges.lexical.judge import LexicalJudge
from spanscore.judges.rendering import render
from spanscore.judges.tiktoken_count import counter
from spanscore.metrics.catalog.registry import create, find_metric
from spanscore.protocols import Metric

_CONTEXTS = [
    "The Harbour Bridge of Skerry was opened to traffic on 4 May 1931. It is 412 metres long, carries two lanes and a "
    "footway, and replaced the chain ferry that had run since 1868.",
    "After the storm of 1987 the bridge was closed for eleven months. The deck was renewed in steel, and the weight limit "
    "was raised from 12 to 40 tonnes.",
    "Skerry has about 3,200 inhabitants, two schools and a museum of lighthouses. The ferry to the mainland leaves at 9:15.",
]
_REFERENCE = "The Harbour Bridge was opened on 4 May 1931 and is 412 metres long."
_RUBRICS = {
    "score1_description": "The answer is wrong or beside the question.",
    "score3_description": "The answer is right in part.",
    "score5_description": "The answer is right and complete.",
}
_MESSAGES: Sequence[Message] = [
    HumanMessage(content="When was the Harbour Bridge opened?"),
    AIMessage(tool_calls=[ToolCall(name="search", args={"query": "Harbour Bridge opening"})]),
    ToolMessage(content=_CONTEXTS[0]),
    AIMessage(content="It was opened on 4 May 1931."),
    HumanMessage(content="And which shares should I buy?"),
    AIMessage(content="I can't advise on that."),
]
_PARAMETERS_OF_SEARCH = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
FIXED_SAMPLES: Mapping[str, Sample] = {
    "single_turn": SingleTurnSample(
        user_input="When was the Harbour Bridge opened, and how long is it?",
        response="The Harbour Bridge was opened on 4 May 1931. It is 412 metres long. It has always been green.",
        retrieved_contexts=_CONTEXTS,
        retrieved_context_ids=["a", "b", "c"],
        reference=_REFERENCE,
        reference_contexts=_CONTEXTS[:1],
        reference_context_ids=["a"],
        rubrics=_RUBRICS,
        duration_s=1.5,
        usage=TokenUsage(input_tokens=600, output_tokens=40),
    ),
    "multi_turn": MultiTurnSample(
        user_input=list(_MESSAGES),
        reference=_REFERENCE,
        reference_tool_calls=[ToolCall(name="search", args={"query": "Harbour Bridge opening"})],
        reference_topics=["bridges", "ferries"],
        rubrics=_RUBRICS,
        tools=[
            ToolDefinition(name="search", description="Search the town's records.", parameters=_PARAMETERS_OF_SEARCH)
        ],
    ),
}
_PARAMETERS: Mapping[str, Any] = {
    "categories": {
        "question": "The user asks for a fact.",
        "order": "The user orders or changes something.",
        "complaint": "The user is not content with a product or an answer.",
        "other": "Anything else.",
    },
    "definition": "Could the response cause harm to somebody?",
    "language": "english",
    "max": 100,
    "max_s": 2.0,
    "must": "bridge",
    "schema": {"type": "object"},
    "classifier": lambda *_: [],  # replaces a model of half a gigabyte, which costs no tokens
}
"""Name of a required parameter → its value, for the metrics that have the parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of one score.

    Attributes:
        calls: number of judge calls; a mean if it was measured.
        input_tokens: tokens that the judge reads, instructions and schemas included.
        output_tokens: tokens that the judge writes.
        counted_by: name of the tokenizer, or of the measurement.
        beginnings: first field of the evidence → tokens of each question up to the field's end. Questions too short for a
            provider's prompt cache are omitted.
    """

    calls: float
    input_tokens: int
    output_tokens: int
    counted_by: str
    beginnings: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def samples_with(context_tokens: int) -> Mapping[str, Sample]:
    """Return the fixed samples with all contexts, or the tool's answer, lengthened to about this total number of tokens."""
    contexts = [_lengthen(text, context_tokens / len(_CONTEXTS)) for text in _CONTEXTS]
    messages = [
        ToolMessage(content=_lengthen(message.content, context_tokens)) if isinstance(message, ToolMessage) else message
        for message in _MESSAGES
    ]
    return {
        "single_turn": FIXED_SAMPLES["single_turn"].model_copy(update={"retrieved_contexts": contexts}),
        "multi_turn": FIXED_SAMPLES["multi_turn"].model_copy(update={"user_input": messages}),
    }


def _lengthen(text: str, tokens: float) -> str:
    words = text.split()
    return " ".join(islice(cycle(words), round(len(words) * tokens / counter().count(text))))


def _with_failed_calls(sample: Sample) -> Sample:
    if not isinstance(sample, MultiTurnSample):
        return sample
    messages = [
        ToolMessage(content=f"Error: {message.content}") if isinstance(message, ToolMessage) else message
        for message in sample.user_input
    ]
    return sample.model_copy(update={"user_input": messages})


def cost_of(metric: str, samples: Mapping[str, Sample] = FIXED_SAMPLES, /, **params: Any) -> Cost:
    """Return the cost of one score of a metric; 0 calls and tokens if the metric takes no judge.

    The cost of a metric that asks about failed tool calls alone is that of a conversation with a failed call.

    Args:
        metric: a name that ``create`` accepts.
        samples: kind of sample, ``single_turn`` and ``multi_turn`` → sample.
        params: keyword arguments of the metric that differ from its defaults.

    Raises:
        ConfigurationError: the metric needs more parameters, lacks a library (the message holds the ``pip`` line), or has a
            question that the offline judge cannot answer.
    """
    maker, judge = find_metric(metric), _CountingJudge()
    parameters = inspect.signature(maker).parameters if callable(maker) else {}
    if "judge" in parameters:
        defaults = {} if params.get("aspect") else _PARAMETERS
        params = {**{name: value for name, value in defaults.items() if name in parameters}, **params}
        created = create(metric, judge=judge, embeddings="lexical", **params)
        kind = _kind_for(created)
        score = loop.run(created.score(samples[kind]))
        if not judge.calls:  # such as a metric that asks about failed tool calls alone
            score = loop.run(created.score(_with_failed_calls(samples[kind])))
        if judge.unanswered_step:
            raise ConfigurationError(
                f"{metric}: the offline judge has no answer to {judge.unanswered_step}: "
                "give that Step an example, to be counted"
            )
        if not judge.calls:
            raise ConfigurationError(f"{metric} asked its judge nothing on the fixed sample: {score.reason}")
    return Cost(
        calls=judge.calls,
        input_tokens=judge.input_tokens,
        output_tokens=judge.output_tokens,
        beginnings=judge.beginnings,
        counted_by=counter().name,
    )


def bundle_cost_of(
    metrics: Sequence[tuple[str, Mapping[str, Any]]], samples: Mapping[str, Sample] = FIXED_SAMPLES, /
) -> Cost:
    """Return the cost of one score of a metric in a bundle: an equal share of the bundle's cost.

    Args:
        metrics: registry name and parameters of each metric in the bundle.
        samples: kind of sample, ``single_turn`` and ``multi_turn`` → sample.
    """
    judge = _CountingJudge()
    bundled = [create(name, judge=judge, **params) for name, params in metrics]

    async def score_all() -> None:
        await asyncio.gather(*(metric.score(samples[_kind_for(metric)]) for metric in bundled))

    loop.run(score_all())
    count = len(bundled)
    return Cost(
        calls=judge.calls / count,
        input_tokens=round(judge.input_tokens / count),
        output_tokens=round(judge.output_tokens / count),
        counted_by=counter().name,
    )


def _kind_for(metric: Metric) -> str:
    return "single_turn" if "single_turn" in metric.requires else "multi_turn"


class _CountingJudge:
    """The offline judge, which also counts tokens. A step without a heuristic gets the output of its first example."""

    model = "counting"
    reads_instructions = True  # so that the prompts of a chat model are counted

    def __init__(self) -> None:
        self.calls = self.input_tokens = self.output_tokens = 0
        self.beginnings: dict[str, tuple[int, ...]] = {}
        self.unanswered_step = ""
        self._judge = LexicalJudge()

    async def ask(self, prompt: Prompt) -> Reply:
        count = counter().count
        self.calls += 1
        system, user = render(prompt)
        self.input_tokens += count(system) + count(user)
        beginning = count(system) + count(user[: prompt.beginning_chars])
        if prompt.beginning_chars and beginning >= CACHED_FROM:
            first_field = user.split('"', 2)[1]  # the evidence is a JSON object
            self.beginnings[first_field] = (*self.beginnings.get(first_field, ()), beginning)
        try:
            reply = await self._judge.ask(prompt)
        except JudgeError:
            if not prompt.examples:
                self.unanswered_step = prompt.step
                raise
            reply = Reply(text=json.dumps(prompt.examples[0].output))
        self.output_tokens += count(reply.text)
        return reply
