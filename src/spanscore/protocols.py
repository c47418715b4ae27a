"""Protocols of every replaceable part of spanscore, in the order in which a run passes them. Read this file first.

    Receiver → (SpanNormalizer) → UnitListener → SampleExtractor → (Redactor, Filter) → Queue → Metric(Judge,
    Embedder) → Sink

Each protocol names its calling thread. ``spanscore.testing`` has contract tests for built-in parts and for parts of your own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Protocol, runtime_checkable

from spanscore.core.job import Job, UnitCounts
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.sample import Annotation, Sample, Samples
from spanscore.core.score import Outcome, Scale, Score
from spanscore.core.span import SamplingContext, SpanData, Unit, UnitKey

__all__ = [
    "AnnotationSink",
    "Counts",
    "DurableQueue",
    "Embedder",
    "Filter",
    "JobSink",
    "Judge",
    "Metric",
    "PendingSpan",
    "Queue",
    "Receiver",
    "Redactor",
    "SampleExtractor",
    "SampleObserver",
    "Sink",
    "SpanNormalizer",
    "UnitListener",
]


@runtime_checkable
class Receiver(Protocol):
    """A source of units: puts events into the event queue on any thread, and passes finished units to a ``UnitListener``.

    Methods run on the span thread, unless they name another thread.
    """

    def handle(self, event: Any, now_ns: int) -> None:
        """Process one of the receiver's events; events arrive in the order in which they were put."""

    def tick(self, now_ns: int) -> None:
        """Do work that is due by time. Called after each batch of events, and at ``next_due_ns`` at the latest."""

    def next_due_ns(self) -> int | None:
        """Return the time of the next ``tick`` that has work, None if no work waits for a time."""

    def in_flight(self) -> set[UnitKey]:
        """Return the units that have ended and are not yet passed on. A flush waits for them."""

    def open_keys(self) -> Iterable[UnitKey]:
        """Return all units that are not yet passed on, ended or not. Span id 0 = every unit of the trace."""

    def drain(self, now_ns: int) -> list[UnitKey]:
        """Pass every unit on in its present state. Return the units that had not ended; their later events are ignored."""

    def unread_count(self) -> int:
        """Return the number of units that the span thread never read. Called on any thread, after that thread's last read."""

    def close(self) -> None:
        """Reject units that begin from now on. Thread-safe."""


@runtime_checkable
class SpanNormalizer(Protocol):
    """Converts a span of another library to GenAI names. Must be pure, thread-safe, and not raise because of a payload."""

    @property
    def name(self) -> str:
        """Name of the instrumentation, in lower case: ``openinference``."""

    @property
    def scopes(self) -> Sequence[str]:
        """Prefixes of the instrumentation scopes that write such spans. A span's start shows only its scope."""

    @property
    def signatures(self) -> Sequence[bytes]:
        """UTF-8 prefixes of attribute names that identify such a span: each span has at least one, as raw bytes in OTLP
        messages.
        """

    def accepts(self, span: SpanData) -> bool:
        """Whether the span is from this instrumentation, and can be part of a unit."""

    def normalize(self, span: SpanData) -> SpanData:
        """Return the span with the same ids and times, and with no attributes but GenAI names and spanscore's own.

        Content is rendered when first read, under names for which ``semconv.is_content`` is true. ``events`` is empty. If the
        span has no content, ``no_content`` gives the reason.
        """


class UnitListener(Protocol):
    """Gets units and their spans from the receivers. Called on the span thread only, except ``unit_excluded``."""

    def metrics_shared(self, key: UnitKey, metrics: Set[str]) -> None:
        """Exclude metrics from a unit that is about to begin, because another scorer of this process scores them on it."""

    def unit_opened(self, key: UnitKey, now_ns: int) -> None:
        """Note that a unit has begun."""

    def span_ended(
        self, key: UnitKey, span: SpanData, pending: PendingSpan | None, now_ns: int, *, size_bytes: int = 0
    ) -> None:
        """Accept an ended span of a unit that may be scored, and end ``pending``, once.

        Args:
            pending: the span to end; None if it was already exported, so that it gets no scores.
            size_bytes: approximate size of the span's content in bytes; 0 if the receiver does not measure it.
        """

    def unit_not_sampled(self, facts: SamplingContext, pending: PendingSpan, now_ns: int) -> None:
        """Accept the known facts and the root of a unit that no metric can sample, and end the root immediately."""

    def unit_excluded(self, facts: SamplingContext) -> None:
        """Count a unit that sampling excluded when it began; no other call follows for the unit. Thread-safe."""

    def events_lost(self, key: UnitKey, now_ns: int) -> None:
        """Note that events of a unit were lost, so that the unit will end as ``incomplete``."""

    def unit_complete(
        self,
        unit: Unit,
        pending: Mapping[int, PendingSpan],
        now_ns: int,
        *,
        lost: Outcome = Outcome.INCOMPLETE,
        reason: str | None = None,
    ) -> None:
        """Accept a unit after the end of all its spans.

        Args:
            unit: the unit with its spans.
            pending: span id → span to end, once; a span that is not in it was exported already.
            lost: the unit's outcome, if the unit is not complete.
            reason: reason of that outcome; None if it is unknown.
        """

    def sample_submitted(
        self, unit: Unit, samples: Samples, pending: PendingSpan | None, *, sampled: bool, now_ns: int
    ) -> None:
        """Accept a unit with its samples.

        Args:
            pending: the unit's root span, to end once; None if the root is a span of another library, which ends it.
            sampled: whether the sampling rates apply; otherwise every metric samples the unit.
        """


class SampleObserver(Protocol):
    """Reads the samples of closed units for another purpose than scores, such as conversations. Called on the span thread."""

    def is_interested(self, facts: SamplingContext) -> bool:
        """Whether the observer needs the samples of a closed unit. Must be pure: it may be called several times per unit."""

    def on_samples(self, facts: SamplingContext, unit: Unit, samples: Samples) -> None:
        """Read the samples of a unit of interest. Called once per unit; units come in any order.

        Args:
            unit: the unit, without content.
            samples: redacted samples; for a unit without a sample, an outcome with a reason.
        """


class PendingSpan(Protocol):
    """A span that is still to be exported: a live span, or a rebuilt ``ReadableSpan``. Used on the span thread only."""

    @property
    def size(self) -> int:
        """Approximate size in bytes."""

    def end(self, attributes: Mapping[str, Any] | None = None) -> None:
        """Set the attributes and end the span at its true end time. Never raises; called once."""


@runtime_checkable
class SampleExtractor(Protocol):
    """Makes the samples of a unit from its ``SpanData`` alone. Called on the loop thread; must not block."""

    def accepts(self, span: SpanData) -> bool:
        """Whether this extractor reads units with this root."""

    def extract(self, unit: Unit) -> Samples:
        """Return the samples of a unit, or an outcome with a reason. Never raises because of a payload."""


@runtime_checkable
class Redactor(Protocol):
    """Removes private text before the judge and before export. Fails closed: if it raises, the text is neither judged nor
    exported.
    """

    def __call__(self, text: str, /) -> str:
        """Return the text without its private parts."""


@runtime_checkable
class Filter(Protocol):
    """Decides whether a unit is scored (not if it raises). Called on any thread of spanscore; must not block.

    A unit with a conversation has two samples: the conversation and its last turn. It is scored if both calls return true.
    """

    def __call__(self, sample: Sample, /) -> bool:
        """Return whether the unit of the sample is to be scored."""


@runtime_checkable
class Queue(Protocol):
    """Bounded queue of jobs between the span thread and the workers, first in, first out.

    ``reserve`` is called on the span thread, before a unit goes to the loop. ``capacity`` and ``len`` may be read on any
    thread; all other methods run on the loop thread.
    """

    @property
    def capacity(self) -> int:
        """Number of places."""

    def __len__(self) -> int:
        """Number of occupied places: reserved places, waiting jobs, and jobs that are being scored."""

    def reserve(self, size_bytes: int) -> bool:
        """Reserve a place for ``size_bytes`` of content. False if the queue is full; an empty queue accepts any size."""

    def cancel(self, size_bytes: int) -> None:
        """Release a reserved place, because the unit has become no job."""

    def put(self, job: Job) -> None:
        """Append a job in a reserved place."""

    async def get(self) -> Job:
        """Wait for the next job. If the call is cancelled, no job is lost."""

    def ack(self, job: Job) -> None:
        """Release the place of a job that is done, whatever its outcome."""

    def close(self) -> list[Job]:
        """Return the jobs that no worker has taken, and release their places."""

    def reset(self) -> None:
        """Return to the initial state in a forked child; the parent keeps the jobs."""


@runtime_checkable
class DurableQueue(Queue, Protocol):
    """A queue on a disk: other processes share its jobs, and a restarted process finds them. Called on the loop thread."""

    def on_result(self, callback: Callable[[Job, Outcome | None, str | None], None]) -> None:
        """Set the callback for the result of each ``put``. The callback gets the job, an outcome of its unit, and the reason.

        An outcome of None means that this process scores the job.
        """

    def begin(self) -> None:
        """Return jobs of other processes from ``get``, too, until ``close``."""

    def save_scores(self, job: Job, scores: Sequence[Score], callback: Callable[[bool], None]) -> None:
        """Save all scores of a job so far; ``callback`` gets whether they are durable, False if another process has the job."""

    def mark_exported(self, units: Sequence[Unit]) -> None:
        """Delete the jobs of units after the export of their spans and scores. Thread-safe."""

    def rejection_reason(self) -> str | None:
        """Return why ``reserve`` rejects a unit, without numbers; None if the queue has no reason to add. Thread-safe."""

    def is_durable(self, key: UnitKey) -> bool:
        """Whether a unit (not a revision) is scored even if this process ends. Thread-safe."""


@runtime_checkable
class Judge(Protocol):
    """A model that answers prompts. Called on the loop thread.

    Four optional attributes:

    - ``reads_instructions = True``: the judge follows the prompt's text and ignores the name of the step. A metric may then
      combine questions about the same texts into one.
    - ``reads_images = True``: the judge reads ``Prompt.images``. Any other judge gets the markers in the texts without images.
    - ``max_input_tokens``: the largest number of tokens of a question; 96,000 if missing.
    - ``prompt_order``: place of the evidence in a question, ``evidence_first`` (the default) or ``instruction_first``.
    """

    @property
    def model(self) -> str:
        """Name of the model at its provider; part of a score's evaluator version."""

    async def ask(self, prompt: Prompt) -> Reply:
        """Answer one prompt.

        Raises:
            JudgeError: the judge gave no answer. A judge never invents an answer.
        """


class Embedder(Protocol):
    """Converts texts to vectors. Called on the loop thread."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text, in the same order; all vectors have the same length."""


@runtime_checkable
class Metric(Protocol):
    """Scores samples. One instance serves every worker. Called on the loop thread, or if ``cpu_bound`` on a pool thread."""

    @property
    def name(self) -> str:
        """Name in lower snake case, unique within a scorer."""

    @property
    def version(self) -> str:
        """Version of the metric, which changes with every prompt and parameter."""

    @property
    def evaluator_version(self) -> str:
        """Metric version, judge model and votes. A change starts a new evaluator version and is no drop."""

    @property
    def scale(self) -> Scale:
        """Kind, range, direction and pass mark of the values."""

    @property
    def requires(self) -> Mapping[str, tuple[str, ...]]:
        """Kind of sample (``single_turn``, ``multi_turn``) → its required fields. The metric cannot score a kind that is
        missing.
        """

    @property
    def cpu_bound(self) -> bool:
        """Whether ``score`` mainly computes, and so runs on a pool thread."""

    async def score(self, sample: Sample) -> Score:
        """Score one sample. Built-in metrics never raise: a failure is an outcome."""


@runtime_checkable
class Sink(Protocol):
    """A destination of scores. Called on the span thread only: a slow exporter delays neither the application nor the loop.

    An exception of a sink is logged, and affects neither the other sinks nor the scorer.
    """

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Publish one or more scores of a unit. Later calls may bring more scores of the unit.

        A score with a ``source`` is not from sampled traffic, and belongs in no mean of scores without a source. ``unit`` has
        no content, and only two of its spans: the root, and the span that names its model. An explanation of a score may quote
        content. Each score comes once; with a spool, scores of a crashed process may come again.
        """

    def shutdown(self) -> None:
        """Release the sink's resources. A second call has no effect; the scorer emits nothing afterwards."""


@runtime_checkable
class JobSink(Protocol):
    """A sink that also gets each finished unit, once, with all its scores. Called on the loop thread; must not block."""

    def emit_job(self, job: Job, scores: Sequence[Score]) -> None:
        """Publish a unit or an ended conversation whose last score is known.

        ``job.samples`` has its redacted samples, which are content. An exception is logged. With a spool, units of a crashed
        process may come again.
        """


@runtime_checkable
class AnnotationSink(Protocol):
    """A sink that also publishes human labels of units. Called on the span thread; its exceptions are logged."""

    def label(self, label: Annotation) -> None:
        """Publish a label. Called once for a label, and again with the next revision if the label changes.

        ``label.unit`` has the value None if this process has no unit with the ``label.key``. ``label.comment`` is set only if
        content may be exported. Personal names are redacted.
        """


class Counts(Protocol):
    """Counts that the observable instruments read. Thread-safe."""

    def count_units(self) -> UnitCounts:
        """Return the counts of units, all at one moment."""
