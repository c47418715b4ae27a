"""Counts model runs in the histograms of the GenAI conventions, unless another instrumentation counts them.

``other_tracers`` finds other libraries that trace LangChain in this process. Each run then has two span trees, so
``log_other_tracers`` warns the operator.
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

# --- other libraries that trace LangChain ----------------------------------------------------------------------------

# OpenInference, OpenLLMetry and similar libraries wrap ``BaseCallbackManager.__init__`` to add their handler to every run.
# ``other_tracers`` inspects the wrapper, so it returns only active libraries, and imports none.

_log = logging.getLogger("spanscore")
_NAMES: Final = {
    "openinference.instrumentation.langchain": "OpenInference",
    "opentelemetry.instrumentation.langchain": "OpenLLMetry",
}
_SPANS_ONLY: Final = "OpenInference "
"""Beginning of the name of the only library that emits no metrics. Any other library that traces LangChain may emit them."""
_LANGCHAIN: Final = "langchain_core"
"""Package that contains ``BaseCallbackManager``."""
_NOT_TRACERS: Final = frozenset({_LANGCHAIN, "builtins"})
"""Packages whose functions and wrappers belong to no tracer."""
_MAX_WRAPPERS: Final = 32
"""Maximum number of wrappers that are followed, because a wrapper may refer to itself."""

_logged: set[str] = set()
"""Names of the tracers that were logged in this process."""


def other_tracers() -> list[str]:
    """Return the libraries that trace LangChain now, outermost first; empty without such a library. Never raises.

    A name is, for example, ``OpenInference (openinference.instrumentation.langchain)``. A call takes some microseconds.
    """
    callbacks = sys.modules.get(f"{_LANGCHAIN}.callbacks")  # None: LangChain was not imported
    manager = getattr(callbacks, "BaseCallbackManager", object)
    modules = [m for m in _modules_of_wrappers(manager.__dict__.get("__init__")) if m.split(".")[0] not in _NOT_TRACERS]
    return [_format_name(module) for module in dict.fromkeys(modules)]


def log_other_tracers(tracers: Sequence[str]) -> None:
    """Log each other tracer of LangChain as a warning, once per process, even with several scorers."""
    for name in tracers:
        if name not in _logged:
            _logged.add(name)
            _log.warning(
                "%s also traces LangChain in this process. Its spans are unchanged; each run is scored once, on spanscore's"
                " own span. capture=Capture(enabled=False) with a ScoringSpanProcessor scores on its spans instead.",
                name,
            )


def tracer_with_metrics(tracers: Sequence[str]) -> str | None:
    """Return the first other tracer that may also emit metrics of model runs, or None."""
    return next((name for name in tracers if not name.startswith(_SPANS_ONLY)), None)


def _modules_of_wrappers(function: Any) -> Iterator[str]:
    """Yield the module of each wrapper around a function, outermost first, and of the function."""
    for _ in range(_MAX_WRAPPERS):
        wrapper = getattr(function, "_self_wrapper", function)  # wrapt's proxy has its wrapper in this attribute
        # The globals are read, because ``functools.wraps`` copies ``__module__``.
        is_function = isinstance(wrapper, FunctionType)
        yield str(wrapper.__globals__.get("__name__", _LANGCHAIN)) if is_function else type(wrapper).__module__
        function = getattr(function, "__wrapped__", None)
        if function is None:
            return


def _format_name(module: str) -> str:
    library = next((name for prefix, name in _NAMES.items() if module.startswith(prefix)), None)
    return module if library is None else f"{library} ({module})"


# --- histograms of model runs -----------------------------------------------------------------------------------------

_MAX_LABEL_SETS: Final = MAX_SETS // 2
"""Maximum number of label sets. The token histogram has two sets for each: input and output."""
_LABELS: Final = (semconv.OPERATION_NAME, semconv.PROVIDER_NAME, semconv.REQUEST_MODEL, semconv.RESPONSE_MODEL)
_TOKENS: Final = {"input": semconv.USAGE_INPUT_TOKENS, "output": semconv.USAGE_OUTPUT_TOKENS}
_SOME_MISSING: Final = "runs below unsampled spans are missing in the metrics of model runs"


class ModelMetrics:
    """Counts model runs on every given meter. For one thread, except ``export_to`` and ``abandon``.

    Runs are not counted if another instrumentation counts them, or if a head sampler drops runs, whose tokens would be missing.

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
        other = tracer_with_metrics(other_tracers()) or _other_scope_with_tokens(providers.meter_provider)
        if other is not None:
            self.off = f"{other} counts them"
        elif not SamplingPrediction(getattr(tracer, "sampler", None)).keeps_all:
            self.off = "the head sampler drops runs, which would be missing in them"
        else:
            self.off = ""
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
        self._exported = {**self._exported, meter: (tokens, duration)}

    def abandon(self, meter: Meter) -> None:
        """Stop counting on this meter, without calling it: in a forked child its locks may never be released."""
        self._exported = {other: histograms for other, histograms in self._exported.items() if other is not meter}

    def record(self, attributes: Mapping[str, Any], duration_s: float, span: Span) -> None:
        """Count one run by the attributes of its span. Missing token counts are not recorded. Never raises.

        A run that LangChain's cache answered is not counted, because no model was called.
        """
        if self.off or semconv.RUN_CACHED in attributes or not any(map(_has_provider, self._exported.values())):
            return
        try:
            self._record(attributes, duration_s, set_span_in_context(span, Context()))
        except Exception as error:  # noqa: BLE001  (a meter provider of the application)
            log_internal_error("count a model run", error)

    def _record(self, attributes: Mapping[str, Any], duration_s: float, exemplar: Context) -> None:
        labels = self._limit(tuple((name, attributes[name]) for name in _LABELS if name in attributes))
        with_error = labels
        if semconv.ERROR_TYPE in attributes:
            with_error = self._limit((*labels, (semconv.ERROR_TYPE, attributes[semconv.ERROR_TYPE])))
        for tokens, duration in self._exported.values():
            duration.record(max(0.0, duration_s), dict(with_error), context=exemplar)
            for token_type, name in _TOKENS.items():
                count = attributes.get(name, -1)
                if count >= 0:  # the SDK warns about negative values
                    tokens.record(count, {**dict(labels), semconv.TOKEN_TYPE: token_type}, context=exemplar)

    def _limit(self, labels: Labels) -> Labels:
        """Return the labels, with values replaced by ``other`` if they are a new set beyond the maximum number of sets."""
        if labels not in self._sets:
            if len(self._sets) >= _MAX_LABEL_SETS:
                self.overflowed += 1
                return tuple((name, value if name == semconv.OPERATION_NAME else OTHER) for name, value in labels)
            self._sets.add(labels)
        return labels


def _has_provider(histograms: tuple[Histogram, Histogram]) -> bool:
    """Return whether recording has an effect. It has none until the application sets a meter provider."""
    # Only the API's proxies have the attribute: None without a provider.
    return getattr(histograms[0], "_real_instrument", ...) is not None


def _other_scope_with_tokens(meter_provider: Any) -> str | None:
    """Return another instrumentation's scope that created the histogram of tokens, or None."""
    meters = getattr(meter_provider, "_meters", None)  # the SDK's: scope → meter
    for scope, meter in list(meters.items()) if isinstance(meters, dict) else ():
        ids = list(getattr(meter, "_instrument_id_instrument", ()))  # "name,class,unit,description"
        if scope.name != semconv.SCOPE and any(str(key).startswith(f"{semconv.CLIENT_TOKEN_USAGE},") for key in ids):
            return str(scope.name)
    return None
