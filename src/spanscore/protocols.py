"""Every seam of the library, in the order in which a run meets them: the map to read first.

    Receiver → (SpanNormalizer) → UnitListener → SampleExtractor → (Redactor, Filter) → Queue → Metric(Judge,
    Embedder) → Sink

Each says on which thread it is called. What is built in and a user's own pass the contract suites of ``spanscore.testing``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
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
    """Where units come in: it puts events into the event queue, from any thread. What they make goes to ``UnitListener``. Span
    thread.
    """

    def handle(self, event: Any, now_ns: int) -> None:
        """Read one of its events, in the order in which they were put."""

    def tick(self, now_ns: int) -> None:
        """Do work that is due by time; called after each batch of events, and at ``next_due_ns`` at the latest."""

    def next_due_ns(self) -> int | None:
        """Return when there will be something to do, None while nothing waits for a time."""

    def in_flight(self) -> set[UnitKey]:
        """Return the units whose root has ended and that it has not handed on yet: a flush waits for them."""

    def drain(self, now_ns: int) -> list[UnitKey]:
        """Hand on every unit as it is, and return those that had not ended; their later events are ignored."""

    def unread_count(self) -> int:
        """Return the number of units without a read event. Any thread, after the span thread's last read."""

    def close(self) -> None:
        """Let no further unit in. Any thread."""


@runtime_checkable
class SpanNormalizer(Protocol):
    """Another library's span → the same span in GenAI names. Pure; any thread; never raises for what a payload holds."""

    @property
    def name(self) -> str:
        """What it reads, in lower case: ``openinference``."""

    @property
    def scopes(self) -> Sequence[str]:
        """Beginnings of the instrumentation scopes that write such spans: all that is known when a span starts."""

    @property
    def signatures(self) -> Sequence[bytes]:
        """Attribute names that betray it, each the beginning of one at least, as UTF-8: as they stand in a message of OTLP."""

    def accepts(self, span: SpanData) -> bool:
        """Whether it is one of its spans, and of something that can be part of a unit."""

    def normalize(self, span: SpanData) -> SpanData:
        """Return the span with ids and times as they are, and with no attribute that is neither a GenAI name nor ours.

        Content is rendered on first need and stands under names of which ``semconv.is_content`` is true; ``events`` are gone;
        where the span has no content, ``no_content`` says so.
        """


class UnitListener(Protocol):
    """Where receivers hand on what they heard. Span thread only."""

    def metrics_shared(self, key: UnitKey, metrics: Set[str]) -> None:
        """Name metrics that another scorer of the process gives a unit that is about to begin: they do not score it here."""

    def unit_opened(self, key: UnitKey, now_ns: int) -> None:
        """Say that a unit began."""

    def span_started(self, key: UnitKey, span_id: int, now_ns: int) -> None:
        """Say that a span of a unit that may be scored began."""

    def span_ended(
        self, key: UnitKey, span: SpanData, pending: PendingSpan | None, now_ns: int, *, size_bytes: int = 0
    ) -> None:
        """Hand over an ended span of a unit that may be scored; who gets ``pending`` must end it, once.

        Args:
            pending: None where the span has left already: it is read, and nothing is put onto it.
            size_bytes: of its content, roughly, where the receiver knows.
        """

    def unit_not_sampled(self, facts: SamplingContext, pending: PendingSpan, now_ns: int) -> None:
        """Hand over the root of a unit that cannot be taken, to be ended at once, with what is known of it."""

    def unit_excluded(self, facts: SamplingContext) -> None:
        """Count a unit that sampling has excluded by what is known when it begins: nothing of it will come. Any thread."""

    def events_lost(self, key: UnitKey, now_ns: int) -> None:
        """Say that events of a unit were lost: it will end ``incomplete``."""

    def unit_complete(
        self,
        unit: Unit,
        pending: Mapping[int, PendingSpan],
        now_ns: int,
        *,
        lost: Outcome = Outcome.INCOMPLETE,
        reason: str | None = None,
    ) -> None:
        """Hand over a unit of which all spans are known, ended ones.

        Args:
            pending: span id → what must be ended, once; a span that is not in it has left already.
            lost: how the unit ends, if it is not complete.
            reason: of that outcome; None = none is known.
        """

    def sample_submitted(
        self, unit: Unit, samples: Samples, pending: PendingSpan | None, *, sampled: bool, now_ns: int
    ) -> None:
        """Hand over a unit whose samples are there already.

        Args:
            pending: its root span; None where that is another's, who ends it.
            sampled: whether the rates apply; else every metric takes it.
        """


class SampleObserver(Protocol):
    """A reader of samples beside the scores: conversations are made of samples. Span thread."""

    def is_interested(self, facts: SamplingContext) -> bool:
        """Whether the observer needs the samples of a unit that has closed. Pure; called again before ``on_samples``."""

    def on_samples(self, facts: SamplingContext, unit: Unit, samples: Samples) -> None:
        """Take the samples of a unit of interest; called once per unit, in any order. ``samples.outcome``: why there are none.

        Args:
            unit: without content.
            samples: redacted.
        """


class PendingSpan(Protocol):
    """One span that still has to leave: a live span, or a rebuilt ``ReadableSpan``. Span thread only."""

    @property
    def size(self) -> int:
        """Approximate bytes held."""

    def end(self, attributes: Mapping[str, Any] | None = None) -> None:
        """Set the attributes and end the span at its true end time. Never raises; called once."""


@runtime_checkable
class SampleExtractor(Protocol):
    """Unit → Samples. Reads SpanData and nothing else. Loop thread; must not block."""

    def accepts(self, span: SpanData) -> bool:
        """Whether this dialect reads spans like this one."""

    def extract(self, unit: Unit) -> Samples:
        """Make the samples of a unit, or say why there are none. Never raises for what a payload holds."""


@runtime_checkable
class Redactor(Protocol):
    """Text → text, before the judge and before emission. Fails closed: when it raises, the text goes nowhere."""

    def __call__(self, text: str, /) -> str:
        """Return the text without what must not leave."""


@runtime_checkable
class Filter(Protocol):
    """Sample → keep it or not. Any thread of ours; must not block."""

    def __call__(self, sample: Sample, /) -> bool:
        """Return whether the sample shall be scored."""


@runtime_checkable
class Queue(Protocol):
    """Jobs between the span thread and the workers, bounded: the first that came leaves first.

    ``reserve`` is called on the span thread before a unit is handed over; what tells sizes on any; the rest on the loop.
    """

    @property
    def capacity(self) -> int:
        """How many places there are."""

    def __len__(self) -> int:
        """How many of them are taken: by units without a job yet, by jobs that wait, and by those in work."""

    def reserve(self, size_bytes: int) -> bool:
        """Take a place for content of so many bytes. False: full, which an empty queue never is."""

    def cancel(self, size_bytes: int) -> None:
        """Give a reserved place back: the unit made no job."""

    def put(self, job: Job) -> None:
        """Fill a reserved place."""

    async def get(self) -> Job:
        """Wait for the next job. A worker that is cancelled takes none with it."""

    def ack(self, job: Job) -> None:
        """Say that the job is done, whatever its outcome: its place is free."""

    def close(self) -> list[Job]:
        """Return the jobs that no worker took, and free their places."""

    def reset(self) -> None:
        """Be as new: in a forked child, as its parent goes on with what was in it."""


@runtime_checkable
class DurableQueue(Queue, Protocol):
    """A queue on a disk: other processes share its jobs, and a restarted process finds them again. Loop thread."""

    def on_result(self, callback: Callable[[Job, Outcome | None, str | None], None]) -> None:
        """Set the callback of each job that is put: it gets the job, the outcome of its unit, and the reason.

        An outcome of None means that this process scores the job.
        """

    def begin(self) -> None:
        """Take jobs of other processes until ``close``."""

    def save_scores(self, job: Job, scores: Sequence[Score], callback: Callable[[bool], None]) -> None:
        """Save all scores of a job so far; ``callback`` gets True when they are durable, False if the job is another's."""

    def mark_exported(self, units: Sequence[Unit]) -> None:
        """Forget the jobs of units whose spans and scores have been exported. Any thread."""

    def rejection_reason(self) -> str | None:
        """Return why ``reserve`` rejects a unit, without numbers; None: the queue has no reason to add. Any thread."""

    def is_durable(self, key: UnitKey) -> bool:
        """Whether a unit (not a revision) is scored even if this process ends. Any thread."""


@runtime_checkable
class Judge(Protocol):
    """Prompt → Reply. Loop thread.

    A judge that answers any question by what it says, whatever its step is called, may have ``reads_instructions = True``:
    metrics then put questions about the same texts into one, where they have such a question. One whose window is known may
    have ``max_input_tokens``, the tokens that a question to it may have: 96,000 where nothing is told.
    """

    @property
    def model(self) -> str:
        """The model's name as its provider gives it; part of a score's evaluator version."""

    async def ask(self, prompt: Prompt) -> Reply:
        """Answer one prompt.

        Raises:
            JudgeError: there is no answer. A judge never invents one.
        """


class Embedder(Protocol):
    """Texts → vectors. Loop thread."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text, same order, same length each."""


@runtime_checkable
class Metric(Protocol):
    """Sample → Score. Stateless: one instance serves every worker. Loop thread (a CPU-bound one: a pool thread)."""

    @property
    def name(self) -> str:
        """Lower snake case, unique within a scorer."""

    @property
    def version(self) -> str:
        """Changes with every prompt and parameter."""

    @property
    def evaluator_version(self) -> str:
        """Metric version + judge model + votes: a change starts a new evaluator version, it is not a drop."""

    @property
    def scale(self) -> Scale:
        """Kind, range, direction and pass mark of its values."""

    @property
    def requires(self) -> Mapping[str, tuple[str, ...]]:
        """``single_turn`` and/or ``multi_turn`` → the fields that must be there; a missing key: cannot score that kind."""

    @property
    def cpu_bound(self) -> bool:
        """Whether ``score`` computes rather than waits, and so belongs in a pool thread."""

    async def score(self, sample: Sample) -> Score:
        """Score one sample. Built-in metrics never raise: a failure is an outcome."""


@runtime_checkable
class Sink(Protocol):
    """Where scores go. Span thread only, so an exporter that blocks never stalls the application or the loop.

    What it raises is logged, and harms neither the other sinks nor the scorer.
    """

    def emit(self, unit: Unit, scores: Sequence[Score]) -> None:
        """Publish scores of a unit, at least one. Others of it may come in later calls, when they are there; each score once.

        One that has a ``source`` is none of the population: it belongs in no mean beside those that have none.
        ``unit`` carries no content, and of its spans the root and the one that names its model. An explanation quotes content.
        """

    def shutdown(self) -> None:
        """Let go of what the sink holds. Twice is as good as once; a scorer emits nothing after it."""


@runtime_checkable
class AnnotationSink(Protocol):
    """A sink that takes what people say of units, too. Span thread; what it raises is logged."""

    def label(self, label: Annotation) -> None:
        """Publish a label, once; a changed one comes again, with the next revision.

        ``unit`` is None where this process knows none that has the ``key``. ``comment`` is there only where content may leave,
        and what can name a person has been redacted.
        """


class Counts(Protocol):
    """What the observable instruments read. Any thread."""

    def count_units(self) -> UnitCounts:
        """Return how units stand, all of one moment."""
