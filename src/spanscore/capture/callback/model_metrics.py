"""Counts model runs in the histograms of the GenAI conventions, unless another instrumentation counts them.

Also finds other libraries that trace LangChain in this process (``neighbours``), and logs them (``announce``).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.context import Context
from opentelemetry.metrics import NoOpMeter
from opentelemetry.trace import Span, set_span_in_context

from spanscore import semconv
from spanscore.core.log import log_internal_error
from spanscore.core.score import Outcome
from spanscore.outputs.aggregates import MAX_SETS, OTHER, Labels
from spanscore.outputs.instruments import DURATION_BUCKETS
from spanscore.outputs.providers import Providers
from spanscore.outputs.spans import SamplingPrediction

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram, Meter

# If another library traces LangChain in this process, each run has two span trees, and the operator should be warned.
#
# OpenInference, OpenLLMetry and similar libraries wrap ``BaseCallbackManager.__init__`` to add their handler to every run. This
# module inspects the wrapper. It therefore names only libraries that are active, not libraries that are merely installed, and
# it imports no library.

_log = logging.getLogger("spanscore")
_KNOWN: Final = {
    "openinference.instrumentation.langchain": "OpenInference",
    "opentelemetry.instrumentation.langchain": "OpenLLMetry",
}
_SPANS_ONLY: Final = "OpenInference "
"""Prefix of the name of the only library that emits spans but no metrics. Every other library that traces LangChain may emit
metrics, as OpenLLMetry does.
"""
_LANGCHAIN: Final = "langchain_core"
"""Package that contains ``BaseCallbackManager``."""
_NOT_TRACERS: Final = frozenset({_LANGCHAIN, "builtins"})
"""Packages of functions and wrappers that belong to no tracer."""
_DEEPEST: Final = 32
"""Maximum number of wrappers that are followed, because a wrapper may refer to itself."""

_announced: set[str] = set()
"""Names of the tracers that this process has logged."""


def neighbours() -> list[str]:
    """Return the libraries that trace LangChain now, outermost first; empty without such a library. Never raises.

    Example of a name: ``OpenInference (openinference.instrumentation.langchain)``. The call takes some microseconds, so do not
    repeat it for every run.
    """
    callbacks = sys.modules.get(f"{_LANGCHAIN}.callbacks")  # not loaded: there is nothing to trace
    manager = getattr(callbacks, "BaseCallbackManager", object)
    modules = [m for m in _modules(manager.__dict__.get("__init__")) if m.split(".")[0] not in _NOT_TRACERS]
    return [_format_name(module) for module in dict.fromkeys(modules)]


def announce(active: Sequence[str]) -> None:
    """Log each other tracer of LangChain as a warning, once per process, even with several scorers."""
    for name in active:
        if name not in _announced:
            _announced.add(name)
            _log.warning(
                "%s also traces LangChain in this process. Its spans are unchanged; each run is scored once, on spanscore's"
                " own span. capture=Capture(enabled=False) with a ScoringSpanProcessor scores on its spans instead.",
                name,
            )


def who_counts(active: Sequence[str]) -> str | None:
    """Return the first other tracer that may also emit metrics of model runs, or None."""
    return next((name for name in active if not name.startswith(_SPANS_ONLY)), None)


def _modules(function: Any) -> Iterator[str]:
    """Yield the module of each wrapper around a function, outermost first, and of the function."""
    for _ in range(_DEEPEST):
        yield _module(getattr(function, "_self_wrapper", function))  # wrapt's proxy keeps its wrapper in this attribute
        function = getattr(function, "__wrapped__", None)
        if function is None:
            return


def _module(wrapper: Any) -> str:
    """Return the module in which a wrapper was written: ``functools.wraps`` copies ``__module__``, but not the globals."""
    if isinstance(wrapper, FunctionType):
        return str(wrapper.__globals__.get("__name__", _LANGCHAIN))
    return type(wrapper).__module__


def _format_name(module: str) -> str:
    library = next((name for prefix, name in _KNOWN.items() if module.startswith(prefix)), None)
    return module if library is None else f"{library} ({module})"


_SETS: Final = MAX_SETS // 2
"""Maximum number of label sets; each is two sets of the token histogram: input and output."""
_RUN: Final = (semconv.OPERATION_NAME, semconv.PROVIDER_NAME, semconv.REQUEST_MODEL, semconv.RESPONSE_MODEL)
_TOKENS: Final = {"input": semconv.USAGE_INPUT_TOKENS, "output": semconv.USAGE_OUTPUT_TOKENS}
_SOME_MISSING: Final = "runs below unsampled spans are missing in the metrics of model runs"


class ModelMetrics:
    """Counts model runs on every given meter. For one thread, except ``export_to`` and ``abandon``.

    It counts nothing if a head sampler drops runs, because their tokens would be missing, or if another instrumentation counts
    them.

    Attributes:
        off: reason for which runs are not counted; empty while they are counted.
        overflowed: number of replacements of a label set by ``other``, because there were too many different sets. A failed run
            may add two.
    """

    def __init__(self) -> None:
        self.off = ""
        self.overflowed = 0
        self._sets: set[Labels] = set()
        self._exported: Mapping[Meter, tuple[Histogram, Histogram]] = {}

    def start(self, tracer: Any, providers: Providers) -> None:
        """Start to count on the application's meter, unless there is a reason not to."""
        self.off = _why_not(tracer, providers.meter_provider)
        if not self.off:
            self.export_to(providers.meter())

    def notes(self, outcomes: Iterable[tuple[str, Outcome]]) -> list[str]:
        """Return the notes on these metrics for ``status()``, given the (metric, outcome) pairs of the units."""
        if self.off:
            return [f"no metrics of model runs ({semconv.CLIENT_TOKEN_USAGE} …), as {self.off}"]
        return [_SOME_MISSING] if any(outcome is Outcome.TRACE_NOT_SAMPLED for _, outcome in outcomes) else []

    def export_to(self, meter: Meter) -> None:
        """Also count on this meter. A no-op meter is left out, because its labels would cost 10 µs per run."""
        if isinstance(meter, NoOpMeter):
            return
        self._exported = {**self._exported, meter: _histograms(meter)}

    def abandon(self, meter: Meter) -> None:
        """Stop counting on this meter without calling it; for a forked child, in which its locks may never be released."""
        self._exported = {exporting: made for exporting, made in self._exported.items() if exporting is not meter}

    def record(self, attributes: Mapping[str, Any], duration_s: float, span: Span) -> None:
        """Count one run by the attributes of its span. Missing token counts are not 0. Never raises.

        A run that was answered by LangChain's cache is not counted, because no model was called.
        """
        if self.off or semconv.RUN_CACHED in attributes or not any(map(_records, self._exported.values())):
            return
        try:
            self._record(attributes, duration_s, set_span_in_context(span, Context()))
        except Exception as error:  # noqa: BLE001  (a meter provider of the application)
            log_internal_error("count a model run", error)

    def _record(self, attributes: Mapping[str, Any], duration_s: float, exemplar: Context) -> None:
        labels = self._admit(tuple((name, attributes[name]) for name in _RUN if name in attributes))
        failed = ((semconv.ERROR_TYPE, attributes[semconv.ERROR_TYPE]),) if semconv.ERROR_TYPE in attributes else ()
        of_run = dict(self._admit((*labels, *failed)) if failed else labels)
        for tokens, duration in self._exported.values():
            duration.record(max(0.0, duration_s), of_run, context=exemplar)
            for kind, name in _TOKENS.items():
                tokens_used = attributes.get(name, -1)
                if tokens_used >= 0:  # the SDK warns about negative values
                    tokens.record(tokens_used, {**dict(labels), semconv.TOKEN_TYPE: kind}, context=exemplar)

    def _admit(self, labels: Labels) -> Labels:
        if labels not in self._sets:
            if len(self._sets) >= _SETS:
                self.overflowed += 1
                return tuple((name, value if name == semconv.OPERATION_NAME else OTHER) for name, value in labels)
            self._sets.add(labels)
        return labels


def _records(made: tuple[Histogram, Histogram]) -> bool:
    """Return whether recording has an effect. Recording has none until an application sets a meter provider."""
    return getattr(made[0], "_real_instrument", made) is not None  # None in the API's proxies, without a provider


def _why_not(tracer: Any, meter_provider: Any) -> str:
    """Return the reason for which model runs of this process must not be counted; empty if they are counted."""
    who = who_counts(neighbours()) or _maker_in(meter_provider)
    if who is not None:
        return f"{who} counts them"
    if not SamplingPrediction(getattr(tracer, "sampler", None)).keeps_all:
        return "the head sampler drops runs, which would be missing in them"
    return ""


def _maker_in(meter_provider: Any) -> str | None:
    """Return another instrumentation's scope that created the histogram of tokens, or None."""
    meters = getattr(meter_provider, "_meters", None)  # the SDK's, by scope
    for scope, meter in list(meters.items()) if isinstance(meters, dict) else ():
        made = list(getattr(meter, "_instrument_id_instrument", ()))  # keys: name, class, unit, description
        if scope.name != semconv.SCOPE and any(str(key).startswith(f"{semconv.CLIENT_TOKEN_USAGE},") for key in made):
            return str(scope.name)
    return None


def _histograms(meter: Meter) -> tuple[Histogram, Histogram]:
    """Create the histogram of tokens, and that of durations."""
    tokens = meter.create_histogram(
        semconv.CLIENT_TOKEN_USAGE,
        unit="{token}",
        description="Number of input and output tokens used",
        explicit_bucket_boundaries_advisory=semconv.CLIENT_TOKEN_BUCKETS,
    )
    duration = meter.create_histogram(
        semconv.CLIENT_OPERATION_DURATION,
        unit="s",
        description="GenAI operation duration",
        explicit_bucket_boundaries_advisory=DURATION_BUCKETS,
    )
    return tokens, duration
