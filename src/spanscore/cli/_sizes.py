"""How long the application's samples are, stated or measured → what one score of a metric costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spanscore import semconv
from spanscore.core.codecs.otlp import stored_spans
from spanscore.core.codecs.text import as_text, plain_number
from spanscore.core.span import SpanData
from spanscore.errors import ConfigurationError
from spanscore.metrics.catalog.cost import Cost, cost_of, samples_with

__all__ = ["Sizes", "read_measured_costs"]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How long samples are.

    Attributes:
        context_tokens: of the contexts of a request together; None = the short ones of the metric's card.
        measured: metric → the mean cost of its stored scores; it is believed before anything else.
    """

    context_tokens: int | None = None
    measured: Mapping[str, Cost] = field(default_factory=dict)

    def cost_of(self, name: str, metric: str, parameters: Mapping[str, Any]) -> Cost:
        """Return what a score costs of a metric that is called so.

        Raises:
            ConfigurationError: it is not measured, and asks what the offline judge cannot answer.
        """
        if name in self.measured:
            return self.measured[name]
        long = () if self.context_tokens is None else (samples_with(self.context_tokens),)
        return cost_of(metric, *long, **parameters)

    def __str__(self) -> str:
        if self.context_tokens is None:
            return "on a short sample: three contexts of a sentence or two; longer ones cost more"
        return f"on a short question and answer with contexts of {self.context_tokens:,} tokens together"


def read_measured_costs(file: str, metrics: Iterable[str]) -> Mapping[str, Cost]:
    """Return metric → what its scores cost that a file of spans holds, on average.

    Args:
        file: OTLP-JSON lines; ``-`` = standard input.
        metrics: those that are wanted.

    Raises:
        ConfigurationError: it cannot be read, or holds none of them with its judge's tokens.
        SampleError: a line is not OTLP-JSON.
    """
    paid_for: dict[str, list[tuple[float, ...]]] = {name: [] for name in metrics}
    with stored_spans(file) as spans:
        for span in spans:
            of_metric = paid_for.get(as_text(span.attributes.get(semconv.EVALUATION_NAME) or ""))
            paid = _read_judge_usage(span)
            if of_metric is not None and any(paid[1:]):  # of the offline judge there are calls, and no tokens
                of_metric.append(paid)
    costs = {name: _mean(paid) for name, paid in paid_for.items() if paid}
    if not costs:
        raise ConfigurationError(
            f"--costs-from {file}: it holds no score of {', '.join(paid_for)} with its judge's tokens"
        )
    return costs


def _read_judge_usage(span: SpanData) -> tuple[float, ...]:
    """Return questions, tokens read and written; zeros of what is no score of the configured judge."""
    if span.scope != semconv.SCOPE or semconv.EVALUATION_SOURCE in span.attributes:
        return 0.0, 0.0, 0.0
    names = (
        semconv.JUDGE_CALLS_ATTRIBUTE,
        semconv.JUDGE_CACHED_CALLS,
        semconv.JUDGE_INPUT_TOKENS,
        semconv.JUDGE_OUTPUT_TOKENS,
    )
    calls, cached, read, written = (plain_number(span.attributes.get(name)) or 0.0 for name in names)
    return calls - cached, read, written


def _mean(paid: list[tuple[float, ...]]) -> Cost:
    calls, read, written = (sum(column) / len(paid) for column in zip(*paid, strict=True))
    source = f"measured on {len(paid):,} scores"
    return Cost(calls=calls, input_tokens=round(read), output_tokens=round(written), counted_by=source)
