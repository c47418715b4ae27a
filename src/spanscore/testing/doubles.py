"""Test doubles and builders: judges, embeddings, clock, sink, spans, units, scores, and metrics by name."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from pydantic import BaseModel

from spanscore import semconv
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.score import UNIT_INTERVAL, Outcome, Score, ScoreValue
from spanscore.core.span import SpanData, Unit, UnitKey
from spanscore.errors import JudgeError
from spanscore.judges.build import shared_judge
from spanscore.metrics.catalog.registry import create
from spanscore.metrics.faithfulness import judged_pairs
from spanscore.metrics.kit.base import BaseMetric
from spanscore.protocols import Metric


class LooseClassifications(BaseModel):
    """An answer with flags of any type, such as words and numbers. A judge with its own schema may return such flags."""

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
    """Return a metric by name, with a judge and embeddings if the metric uses them.

    Args:
        metric: name of a built-in metric, or ``"my_pkg.metrics:Politeness"``.
        judge: a Judge or a chat model; ignored by metrics without a judge. It also replaces the local classifier of
            ``faithfulness_with_hhem`` (step ``classify_pairs``), so that no model must be loaded.
        embeddings: an Embedder or LangChain embeddings; ignored by metrics without embeddings.
        loose_classification_schema: whether the step ``classify_topics`` accepts flags of any type, so that tests can cover
            the conversion of flags.
        params: parameters of the metric; ``name`` may be one.

    Raises:
        ConfigurationError: the name or a parameter is unknown.
    """
    if metric == "faithfulness_with_hhem" and judge is not None:
        params.setdefault("classifier", judged_pairs(shared_judge(judge)))
    created = create(metric, judge=judge, embeddings=embeddings, **params)
    if loose_classification_schema and isinstance(created, BaseMetric):
        step = created.steps["classify_topics"]
        created.steps = {**created.steps, step.name: replace(step, output=LooseClassifications)}
    return created


_ids = count(1)
_DURATION_NS = 1_000_000_000
"""Duration of a test span in nanoseconds. Test spans start 1 µs after each other, so children start inside their parent."""


def make_span(
    operation: str = semconv.INVOKE_WORKFLOW, /, *, attributes: Mapping[str, Any] | None = None, **fields: Any
) -> SpanData:
    """Return a span of the capture scope that lasts one second; it is a root unless ``parent_id`` is given."""
    number = next(_ids)
    values: dict[str, Any] = {
        "trace_id": number,
        "span_id": number,
        "parent_id": None,
        "name": f"{operation} test",
        "start_ns": number * 1_000,
        "end_ns": number * 1_000 + _DURATION_NS,
        **fields,
    }
    return SpanData(attributes={semconv.OPERATION_NAME: operation, **(attributes or {})}, **values)


def make_unit(root: SpanData, /, *children: SpanData) -> Unit:
    """Return a complete unit of a root and its descendants, in start order."""
    spans = tuple(sorted((root, *children), key=lambda span: span.start_ns))
    return Unit(UnitKey(root.trace_id, root.span_id), spans)


def make_score(value: ScoreValue | None = 1.0, /, metric: str = "faithfulness", **fields: Any) -> Score:
    """Return a score. A score without a value has the outcome ``no_value``, unless ``outcome`` is given."""
    scale = fields.pop("scale", UNIT_INTERVAL)
    quality = None if value is None else scale.quality(value)
    values: dict[str, Any] = {
        "version": "1",
        "evaluator_version": "1/judge/1",
        "outcome": Outcome.NO_VALUE if value is None else Outcome.SCORED,
        "quality": quality,
        "label": scale.label(quality),
        "probability": 1.0,
        "threshold": 0,
        **fields,
    }
    return Score(metric=metric, scale=scale, value=value, **values)


@dataclass(eq=False)
class ManualClock:
    """A clock that tests move by hand. Call it to get the time in nanoseconds since the epoch.

    Attributes:
        now_ns: the time, in nanoseconds.
    """

    now_ns: int = 1_700_000_000_000_000_000

    def __call__(self) -> int:
        """Return the time in nanoseconds."""
        return self.now_ns

    def advance(self, seconds: float) -> int:
        """Move the clock forward by seconds; return the new time in nanoseconds."""
        self.now_ns += int(seconds * 1e9)
        return self.now_ns


class ScriptedJudge:
    """A judge with prepared answers. It gives the answers of the prompt's step in order.

    Args:
        answers: ``{"step": name, "output": {…}}`` returns the object as JSON, ``{"step": name, "raw": text}`` returns the text
            unchanged. If an answer has both, ``raw`` is returned. The step of a repair is ``fix_output_format``.
        model: name of the model.

    Attributes:
        calls: prompts of all questions in order, including those without an answer.
    """

    def __init__(self, answers: Iterable[Mapping[str, Any]] = (), *, model: str = "scripted") -> None:
        self.calls: list[Prompt] = []
        self.model = model
        self._answers: dict[str, deque[Mapping[str, Any]]] = defaultdict(deque)
        for answer in answers:
            self._answers[answer["step"]].append(answer)

    async def ask(self, prompt: Prompt) -> Reply:
        """Return the next answer of the prompt's step.

        Raises:
            JudgeError: the step has no answer left.
        """
        self.calls.append(prompt)
        if not self._answers[prompt.step]:
            raise JudgeError(f"the script has no answer left for {prompt.step}", error_type="script_ended")
        answer = self._answers[prompt.step].popleft()
        raw = answer.get("raw")
        return Reply(text=raw if raw is not None else json.dumps(answer.get("output")), model=self.model)


class ScriptedEmbeddings:
    """Embeddings with prepared vectors.

    Args:
        vectors: text → vector.

    Attributes:
        calls: requested texts, in order.
    """

    def __init__(self, vectors: Mapping[str, Sequence[float]]) -> None:
        self.calls: list[str] = []
        self._vectors = {text: list(vector) for text, vector in vectors.items()}

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vectors of the texts.

        Raises:
            JudgeError: a text has no vector.
        """
        self.calls.extend(texts)
        for text in texts:
            if text not in self._vectors:
                raise JudgeError("the script has no vector for a text", error_type="script_ended")
        return [self._vectors[text] for text in texts]


@dataclass(eq=False)
class MemorySink:
    """A ``Sink`` for tests: pass it to ``Outputs(sinks=[…])`` and read ``emitted`` after ``flush``.

    Attributes:
        emitted: pairs of a unit and its scores, in the order of emission.
        closed: whether ``shutdown`` was called.
    """

    emitted: list[tuple[Unit, list[Score]]] = field(default_factory=list)
    closed: bool = False

    @property
    def scores(self) -> list[Score]:
        """All scores in the order of emission."""
        return [score for _, scores in self.emitted for score in scores]

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Keep the unit and its scores."""
        self.emitted.append((unit, list(scores)))

    def shutdown(self) -> None:
        """Set ``closed``."""
        self.closed = True
