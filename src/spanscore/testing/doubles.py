"""Doubles and builders: judges, embeddings, clock, sink, spans, units, scores, and metrics by name."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from pydantic import BaseModel

from spanscore import semconv
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.score import UNIT_INTERVAL, Outcome, Score
from spanscore.core.span import SpanData, Unit, UnitKey
from spanscore.errors import JudgeError
from spanscore.judges.build import shared_judge
from spanscore.metrics.catalog.registry import create
from spanscore.metrics.faithfulness_with_hhem import judged_pairs
from spanscore.metrics.kit.base import BaseMetric
from spanscore.protocols import Metric

__all__ = [
    "ManualClock",
    "MemorySink",
    "ScriptedEmbeddings",
    "ScriptedJudge",
    "build_metric",
    "make_score",
    "make_span",
    "make_unit",
]


class LooseClassifications(BaseModel):
    """Flags of any kind: what a judge with a schema of its own might give."""

    classifications: list[Any]


def build_metric(
    metric: str,
    /,
    *,
    judge: Any = None,
    embeddings: Any = None,
    loose_classification_schema: bool = False,
    **params: Any,
) -> Metric:
    """Return a metric by name, with a judge and embeddings where it takes them.

    Args:
        metric: a built-in's name, or ``"my_pkg.metrics:Politeness"``.
        judge: a Judge or a chat model; ignored by metrics that ask none. It stands in for the local classifier of
            ``faithfulness_with_hhem`` too (step ``classify_pairs``), so that no model need be loaded.
        embeddings: an Embedder or LangChain embeddings; likewise.
        loose_classification_schema: the step ``classify_topics`` takes flags of any type, so that their conversion is reached.
        params: of the metric; ``name`` may be one.

    Raises:
        ConfigurationError: unknown name or parameter.
    """
    if metric == "faithfulness_with_hhem" and judge is not None:
        params.setdefault("classifier", judged_pairs(shared_judge(judge)))
    made = create(metric, judge=judge, embeddings=embeddings, **params)
    if loose_classification_schema and isinstance(made, BaseMetric):
        step = made.steps["classify_topics"]
        made.steps = {**made.steps, step.name: replace(step, output=LooseClassifications)}
    return made


_ids = count(1)
_LASTS_NS = 1_000_000_000
"""How long a span lasts: longer than the time from the first made span to the last, so that children begin within it."""


def make_span(
    operation: str = semconv.INVOKE_WORKFLOW, /, *, attributes: Mapping[str, Any] | None = None, **fields: Any
) -> SpanData:
    """Return a span of the capture scope that lasts a second; a root unless ``parent_id`` is given."""
    number = next(_ids)
    given: dict[str, Any] = {
        "trace_id": number,
        "span_id": number,
        "parent_id": None,
        "name": f"{operation} test",
        "start_ns": number * 1_000,
        "end_ns": number * 1_000 + _LASTS_NS,
        **fields,
    }
    return SpanData(attributes={semconv.OPERATION_NAME: operation, **(attributes or {})}, **given)


def make_unit(root: SpanData, /, *children: SpanData) -> Unit:
    """Return a complete unit of a root and its descendants, in start order."""
    spans = tuple(sorted((root, *children), key=lambda span: span.start_ns))
    return Unit(UnitKey(root.trace_id, root.span_id), spans)


def make_score(value: float | None = 1.0, /, metric: str = "faithfulness", **fields: Any) -> Score:
    """Return a score; without a value its outcome is ``no_value`` unless ``outcome`` says otherwise."""
    scale = fields.pop("scale", UNIT_INTERVAL)
    quality = None if value is None else scale.quality(value)
    given: dict[str, Any] = {
        "version": "1",
        "evaluator_version": "1/judge/1",
        "outcome": Outcome.NO_VALUE if value is None else Outcome.SCORED,
        "quality": quality,
        "label": scale.label(quality),
        "probability": 1.0,
        "threshold": 0,
        **fields,
    }
    return Score(metric=metric, scale=scale, value=value, **given)


class ManualClock:
    """Nanoseconds since the epoch, moved by hand; call it to read it.

    Args:
        now_ns: where it starts.
    """

    def __init__(self, now_ns: int = 1_700_000_000_000_000_000) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        """Return the time in nanoseconds."""
        return self.now_ns

    def advance(self, seconds: float) -> int:
        """Move forward; return the new time in nanoseconds."""
        self.now_ns += int(seconds * 1e9)
        return self.now_ns


class ScriptedJudge:
    """A judge that gives prepared answers, matched by step name and in order within a step.

    Args:
        answers: ``{"step": name, "output": {…}}`` gives that object as JSON, ``{"step": name, "raw": text}`` the text as it is
            (also beside an ``output``). The answers of a repair stand under the step ``fix_output_format``.
        model: its name.

    Attributes:
        model: likewise.
        calls: the prompts it was asked, in order, those it had no answer for included.
    """

    def __init__(self, answers: Iterable[Mapping[str, Any]] = (), *, model: str = "scripted") -> None:
        self.calls: list[Prompt] = []
        self.model = model
        self._answers: dict[str, deque[Mapping[str, Any]]] = defaultdict(deque)
        for answer in answers:
            self._answers[answer["step"]].append(answer)

    async def ask(self, prompt: Prompt) -> Reply:
        """Give the next answer of the prompt's step.

        Raises:
            JudgeError: there is none left.
        """
        self.calls.append(prompt)
        if not self._answers[prompt.step]:
            raise JudgeError(f"the script has no answer left for {prompt.step}", error_type="script_ended")
        answer = self._answers[prompt.step].popleft()
        raw = answer.get("raw")
        return Reply(text=raw if raw is not None else json.dumps(answer.get("output")), model=self.model)


class ScriptedEmbeddings:
    """Embeddings that look each text up.

    Args:
        vectors: text → vector.

    Attributes:
        calls: the texts it was asked for, in order.
    """

    def __init__(self, vectors: Mapping[str, Sequence[float]]) -> None:
        self.calls: list[str] = []
        self._vectors = {text: list(vector) for text, vector in vectors.items()}

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vectors of the texts.

        Raises:
            JudgeError: one has none.
        """
        self.calls.extend(texts)
        for text in texts:
            if text not in self._vectors:
                raise JudgeError("the script has no vector for a text", error_type="script_ended")
        return [self._vectors[text] for text in texts]


class MemorySink:
    """A ``Sink`` for tests: hand it to ``Outputs(sinks=[…])`` and read ``emitted`` after ``flush``.

    Attributes:
        emitted: (unit, its scores), in the order in which they left.
    """

    def __init__(self) -> None:
        self.emitted: list[tuple[Unit, list[Score]]] = []
        self.closed = False

    @property
    def scores(self) -> list[Score]:
        """Every score, in order."""
        return [score for _, scores in self.emitted for score in scores]

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Keep them."""
        self.emitted.append((unit, list(scores)))

    def shutdown(self) -> None:
        """Note it."""
        self.closed = True
