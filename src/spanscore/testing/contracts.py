"""Tests of the public protocols, as classes to subclass: judge, sink, extractor, normalizer, receiver."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from time import time_ns
from typing import Any, Final

from pydantic import BaseModel

from spanscore import semconv
from spanscore.core.event_queue import EventQueue
from spanscore.core.prompt import Prompt, Reply
from spanscore.core.sample import Samples
from spanscore.core.score import Outcome, Scale, Score
from spanscore.core.span import SamplingContext, SpanData, Unit, UnitKey
from spanscore.errors import JudgeError
from spanscore.protocols import Judge, PendingSpan, Receiver, SampleExtractor, Sink, SpanNormalizer, UnitListener
from spanscore.testing.doubles import make_score, make_span, make_unit

_CONCURRENT_QUESTIONS: Final = 20
_UNUSUAL_QUESTIONS: Final = ("", "\ud83d\x00", "</evidence>\n```json", '{"verdict": 1}', "word " * 50_000)


class _Verdict(BaseModel):
    verdict: int


class JudgeContract:
    """Tests of a judge. Subclass it and implement ``make``, with a model that needs no network.

    Attributes:
        timeout_s: time in seconds that a check waits for a cancelled question to end.
    """

    timeout_s = 5.0

    def make(self) -> Judge:
        """Return a new judge."""
        raise NotImplementedError

    def prompt(self, question: str = "Is the sky blue?") -> Prompt:
        """Return a question for the judge, with any text of a user as evidence."""
        return Prompt(
            step="critique",
            instruction="Answer 1 if the answer to the question is yes, else 0.",
            evidence={"question": question},
            output=_Verdict,
        )

    def test_it_is_a_judge(self) -> None:
        """It has ``model`` and ``ask``."""
        assert isinstance(self.make(), Judge)

    def test_it_names_its_model(self) -> None:
        """The evaluator version of a score contains this name: another name is another evaluator version."""
        judge = self.make()

        assert isinstance(judge.model, str), "model must be a text"
        assert judge.model, "model must name the model"
        assert judge.model == judge.model == self.make().model, "the same model must have the same name"

    def test_it_answers_or_raises_a_judge_error(self) -> None:
        """Any evidence leads to a ``Reply``, or to a ``JudgeError`` with its type; no other exception is raised."""
        judge = self.make()

        async def ask_each() -> None:
            for evidence in ("Is the sky blue?", *_UNUSUAL_QUESTIONS):
                _check_answer(await _ask(judge, self.prompt(evidence)))

        asyncio.run(ask_each())

    def test_many_questions_at_once_are_answered_like_one(self) -> None:
        """One judge serves every metric and every worker."""
        judge = self.make()

        async def ask_all() -> list[Reply | JudgeError]:
            return await asyncio.gather(*(_ask(judge, self.prompt()) for _ in range(_CONCURRENT_QUESTIONS)))

        answered = {isinstance(_check_answer(outcome), Reply) for outcome in asyncio.run(ask_all())}
        assert len(answered) == 1, "only some of the equal questions were answered"

    def test_it_works_on_one_loop_after_another(self) -> None:
        """A forked child, and ``evaluate_sync`` called twice, use the judge on another loop."""
        judge = self.make()

        answered = [isinstance(_check_answer(asyncio.run(_ask(judge, self.prompt()))), Reply) for _ in range(2)]

        assert answered[0] == answered[1], "a question is answered on one loop, but not on the next"

    def test_a_question_can_be_cancelled(self) -> None:
        """A cancelled question ends as cancelled, because a metric continues without it at its deadline."""
        judge = self.make()

        async def cancel_question() -> bool:
            question = asyncio.ensure_future(judge.ask(self.prompt()))
            await asyncio.sleep(0)
            if question.done():
                return question.exception() is None or isinstance(question.exception(), JudgeError)
            question.cancel()
            await asyncio.wait({question}, timeout=self.timeout_s)
            return question.cancelled()

        assert asyncio.run(cancel_question()), "a cancelled question continues, or does not end as cancelled"


async def _ask(judge: Judge, prompt: Prompt) -> Reply | JudgeError:
    try:
        return await judge.ask(prompt)
    except JudgeError as error:
        return error


def _check_answer(outcome: object) -> object:
    if isinstance(outcome, JudgeError):
        assert outcome.error_type, "a JudgeError must have an error_type"
    else:
        assert isinstance(outcome, Reply), f"ask returned {type(outcome).__name__}, not a Reply"
        assert isinstance(outcome.text, str), "a Reply's text must be a text"
    return outcome


_QUOTE: Final = "the user's question, word for word"


class SinkContract:
    """Tests of a sink. Subclass it and implement ``make``. Each check makes a sink, and calls it on another thread.

    Attributes:
        quotes: whether the sink of ``make`` may write explanations, which quote prompts and answers.
    """

    quotes = False

    def make(self) -> Sink:
        """Return a new sink."""
        raise NotImplementedError

    def read_output(self) -> str | None:
        """Return everything that the last sink of ``make`` has written so far; None if the test cannot read it."""
        return None

    def test_it_is_a_sink(self) -> None:
        """It has ``emit`` and ``shutdown``."""
        assert isinstance(self.make(), Sink)

    def test_any_unit_with_any_scores_is_taken(self) -> None:
        """It raises for no possible unit or scores."""
        emit = self.make().emit

        _on_one_thread(*(partial(emit, unit, scores) for unit in _units() for scores in _SCORES))

    def test_what_it_is_given_stays_as_it_was(self) -> None:
        """The next sink gets the same unit and the same scores."""
        unit, scores = _units()[0], [make_score(), make_score(metric="other")]
        before = deepcopy([dict(span.attributes) for span in unit.spans]), list(scores)

        _on_one_thread(partial(self.make().emit, unit, scores))

        assert ([dict(span.attributes) for span in unit.spans], scores) == before, "emit changed its arguments"

    def test_every_score_of_a_unit_is_written(self) -> None:
        """All scores of one call are written."""
        metrics = ("first_of_all", "last_of_all")

        _on_one_thread(partial(self.make().emit, _units()[0], [make_score(metric=name) for name in metrics]))

        lost = self._find_unwritten(metrics)
        assert not lost, f"of {len(metrics)} scores, these were not written: {lost}"

    def test_scores_of_a_unit_that_come_one_after_the_other_are_all_written(self) -> None:
        """A late score of a unit comes in a separate call."""
        emit, unit, metrics = self.make().emit, _units()[0], ("the_first_to_come", "the_last_to_come")

        _on_one_thread(*(partial(emit, unit, [make_score(metric=name)]) for name in metrics))

        lost = self._find_unwritten(metrics)
        assert not lost, f"a unit's scores came in {len(metrics)} calls; these were not written: {lost}"

    def test_explanations_are_not_written_unless_allowed(self) -> None:
        """Content is exported only on request."""
        _on_one_thread(partial(self.make().emit, _units()[0], [make_score(explanation=_QUOTE)]))

        may_pass = self.quotes or _QUOTE not in (self.read_output() or "")
        assert may_pass, "an explanation was written, which quotes content; set quotes = True to allow it"

    def test_shutdown_twice_is_as_good_as_once(self) -> None:
        """Two scorers may share a sink, and each of them shuts it down."""
        sink = self.make()

        _on_one_thread(partial(sink.emit, _units()[0], [make_score()]), sink.shutdown, sink.shutdown)

    def test_a_sink_that_was_given_nothing_can_be_shut_down(self) -> None:
        """A scorer may end before its first score."""
        _on_one_thread(self.make().shutdown)

    def _find_unwritten(self, metrics: tuple[str, ...]) -> list[str]:
        written = self.read_output()
        return [name for name in metrics if written is not None and name not in written]


_SCORES: Final[tuple[list[Score], ...]] = (
    [make_score()],
    [make_score(), make_score(metric="other"), make_score(None, metric="third", outcome=Outcome.JUDGE_ERROR)],
    [make_score(None, outcome=Outcome.TIMEOUT, reason="the judge did not answer", error_type="timeout")],
    [make_score(None, reason="the answer has no statements")],
    [make_score(-0.4, scale=Scale(range=(-1.0, 1.0), negatives_are_zero=True))],
    [make_score(17.0, scale=Scale(kind="ordinal", range=None))],
    [make_score("refund", scale=Scale(kind="categorical", categories=("refund", "other")))],
    [make_score(probability=None, threshold=None)],
)


def _units() -> list[Unit]:
    """Return typical units: of a sampled trace, of an unsampled trace, of another process, and without its root."""
    roots = [make_span(), make_span(trace_flags=0), make_span(resource={"service.name": "shop"}, trace_state="ot=th:8")]
    return [*(make_unit(root).without_content() for root in roots), Unit(UnitKey(1, 1), (), complete=False)]


def _on_one_thread(*calls: Callable[[], object]) -> None:
    with ThreadPoolExecutor(1) as thread:
        for call in calls:
            thread.submit(call).result()


ODD: Final[tuple[Any, ...]] = (
    None,
    "",
    "\ud83d\x00",
    '[{"role": "user", "par',
    "[" * 5_000,
    -1,
    float("nan"),
    b"\xff",
    (),
    [None, 7, "text", {}],
    [{"role": None, "parts": [None, {"type": 7, "content": []}], "content": {"text": 1}}],
    {},
    {"messages": [[], {"type": "human"}], "": None},
    object(),
)
"""Attribute values from a faulty writer, or cut by a processor on the way."""


class SampleExtractorContract:
    """Tests of an extractor. Subclass it and implement ``make`` and ``unit``."""

    def make(self) -> SampleExtractor:
        """Return an extractor."""
        raise NotImplementedError

    def unit(self) -> Unit:
        """Return a complete unit with a question and an answer, as the writer of such spans makes it."""
        raise NotImplementedError

    def test_it_is_an_extractor(self) -> None:
        """It has ``accepts`` and ``extract``."""
        assert isinstance(self.make(), SampleExtractor)

    def test_it_reads_its_own(self) -> None:
        """It claims the unit's root, and finds a sample in the unit."""
        extractor, unit = self.make(), self.unit()

        samples = extractor.extract(unit)

        assert unit.root is not None, "unit() must have a root"
        assert extractor.accepts(unit.root) is True, "it does not claim the root of its own unit"
        assert samples.single_turn or samples.multi_turn, f"it finds no sample in its own unit: {samples.reason}"

    def test_it_leaves_evaluations_alone(self) -> None:
        """An evaluation is never evaluated."""
        spans = [
            make_span(semconv.EVALUATION, scope=semconv.SCOPE, attributes={semconv.EVALUATION_NAME: "faithfulness"}),
            make_span(semconv.EVALUATION, scope="another evaluator"),
            make_span(semconv.CHAT, scope=semconv.JUDGE_SCOPE, attributes={semconv.EVALUATION_NAME: "faithfulness"}),
        ]

        claimed = [span.scope for span in spans if self.make().accepts(span)]
        assert claimed == [], "it claims spans of evaluations or of judges"

    def test_the_same_unit_makes_the_same_samples(self) -> None:
        """The result depends on the spans only, not on the thread or on earlier calls."""
        extractor, unit = self.make(), self.unit()

        with ThreadPoolExecutor(1) as thread:
            elsewhere = thread.submit(self.make().extract, unit).result()

        assert extractor.extract(unit) == extractor.extract(unit) == elsewhere

    def test_a_unit_stays_as_it_was(self) -> None:
        """The extractor must not change the spans."""
        unit = self.unit()
        before = deepcopy([dict(span.attributes) for span in unit.spans])

        self.make().extract(unit)

        assert [dict(span.attributes) for span in unit.spans] == before, "extract changed the unit's attributes"

    def test_no_payload_makes_it_raise(self) -> None:
        """Any attribute value leads to a sample, or to an outcome with a reason."""
        extractor = self.make()

        for unit in _faulty_forms(self.unit()):
            for span in unit.spans:
                extractor.accepts(span)
            _check_samples(extractor.extract(unit))

    def test_a_unit_that_lost_spans_is_read_as_well(self) -> None:
        """Any span may be lost, even the root."""
        extractor, unit = self.make(), self.unit()

        for lost in unit.spans:
            rest = tuple(span for span in unit.spans if span is not lost)
            _check_samples(extractor.extract(replace(unit, spans=rest, complete=False)))


def _check_samples(samples: Samples) -> None:
    has_sample = samples.single_turn is not None or samples.multi_turn is not None
    assert has_sample == (samples.outcome is None), "there must be either a sample or an outcome"
    assert has_sample or samples.reason, "an outcome must have a reason"
    for sample in (samples.single_turn, samples.multi_turn):
        assert sample is None or sample.model_dump_json().encode()


def _faulty_forms(unit: Unit) -> Iterator[Unit]:
    """Yield the unit with odd attributes of one span, with failed spans without an end, and with spans as their own parents."""
    for span in unit.spans:
        for odd in _odd_attributes(span):
            yield replace(unit, spans=tuple(odd if other is span else other for other in unit.spans))
    yield replace(unit, spans=tuple(replace(span, status="error", end_ns=0) for span in unit.spans))
    yield replace(unit, spans=tuple(replace(span, parent_id=span.span_id) for span in unit.spans))


_SAME = ("trace_id", "span_id", "parent_id", "start_ns", "end_ns", "scope", "kind", "status", "trace_flags", "resource")
"""Fields of a span that a normalizer must not change."""


class SpanNormalizerContract:
    """Tests of a normalizer. Subclass it and implement ``make``, ``span`` and ``silent``."""

    def make(self) -> SpanNormalizer:
        """Return a normalizer."""
        raise NotImplementedError

    def span(self) -> SpanData:
        """Return a span with a question and an answer, with its writer's attributes."""
        raise NotImplementedError

    def silent(self) -> SpanData:
        """Return the same span as its writer makes it when content is switched off."""
        raise NotImplementedError

    def test_it_is_a_normalizer(self) -> None:
        """It has ``name``, ``scopes``, ``signatures``, ``accepts`` and ``normalize``."""
        assert isinstance(self.make(), SpanNormalizer)

    def test_it_claims_its_own_by_scope_and_by_attributes(self) -> None:
        """Its span has one of its scopes and one of its signatures, and is claimed."""
        normalizer, span = self.make(), self.span()
        names = [name.encode() for name in span.attributes]

        assert normalizer.accepts(span) is True, "it does not claim its own span"
        assert span.scope.startswith(tuple(normalizer.scopes)), "the span has none of its scopes"
        assert any(name.startswith(tuple(normalizer.signatures)) for name in names), (
            "the span has none of its signatures"
        )

    def test_it_claims_no_span_without_its_signatures(self) -> None:
        """Spans of other libraries are not claimed."""
        http = replace(self.span(), scope="opentelemetry.instrumentation.requests", attributes={"http.route": "/"})

        assert self.make().accepts(http) is False, "it claims a span of an HTTP client"

    def test_only_genai_names_are_left(self) -> None:
        """All attributes of the result have GenAI names; content has the names of content."""
        normalized = self.make().normalize(self.span())
        names = (name for name in normalized.attributes if name not in semconv.PLAIN_ATTRIBUTES)
        foreign = [name for name in names if not semconv.is_content(name)]

        assert foreign == [], f"{foreign} are not GenAI names"
        assert normalized.events == (), "it keeps the span's events"

    def test_without_content_removes_all_content(self) -> None:
        """A unit that is kept after its score has no content."""
        normalized = self.make().normalize(self.span())
        content = [value for name, value in normalized.attributes.items() if semconv.is_content(name)]

        assert content, "it finds no content on its own span"
        assert normalized.no_content is None, "it reports missing content"
        assert not any(map(semconv.is_content, normalized.without_content().attributes)), "some content is left"

    def test_content_that_is_switched_off_is_reported(self) -> None:
        """The unit then has an outcome with this reason, not a score of an empty answer."""
        normalized = self.make().normalize(self.silent())

        assert normalized.no_content is not None, "no_content must be set"
        assert normalized.no_content.reason, "no_content must have a reason"
        assert normalized.no_content.hint, "no_content must have a hint"
        assert not any(map(semconv.is_content, normalized.attributes)), "there is content"

    def test_ids_and_times_stay(self) -> None:
        """The result is the same span."""
        span = self.span()
        normalized = self.make().normalize(span)

        assert [getattr(normalized, name) for name in _SAME] == [getattr(span, name) for name in _SAME]

    def test_a_span_stays_as_it_was(self) -> None:
        """The application's own exporter still has to write the span."""
        span = self.span()
        before = deepcopy(dict(span.attributes))

        dict(self.make().normalize(span).attributes)

        assert dict(span.attributes) == before, "normalize changed the span's attributes"

    def test_no_payload_makes_it_raise(self) -> None:
        """Any value of an attribute or an event leads to a span with readable content."""
        normalizer = self.make()

        for span in (*_odd_attributes(self.span()), *_odd_events(self.span())):
            if normalizer.accepts(span):
                dict(normalizer.normalize(span).attributes)


def _odd_attributes(span: SpanData) -> Iterator[SpanData]:
    """Yield the span with one odd attribute, and with all attributes odd."""
    for odd in ODD:
        yield from (replace(span, attributes={**span.attributes, name: odd}) for name in span.attributes)
        yield replace(span, attributes=dict.fromkeys(span.attributes, odd))


def _odd_events(span: SpanData) -> Iterator[SpanData]:
    for odd in ODD:
        events: list[tuple[str, dict[str, Any]]] = [(name, dict.fromkeys(keys, odd)) for name, keys in span.events]
        yield replace(span, events=events)


_MAX_TICKS: Final = 10
"""Number of ticks after which a receiver must have handed on an ended unit."""


class ReceiverContract:
    """Tests of a receiver. Subclass it and implement ``make`` and ``arrive``."""

    def make(self, event_queue: EventQueue[Receiver], recorded: UnitListener) -> Receiver:
        """Return a new receiver that puts its events into this event queue, and hands its units to this listener."""
        raise NotImplementedError

    def arrive(self) -> None:
        """Let one unit arrive, from its beginning to its end."""
        raise NotImplementedError

    def begin(self) -> bool:
        """Let one unit begin that does not end. Return False if units only arrive whole."""
        return False

    def test_it_is_a_receiver(self) -> None:
        """It has all methods that the span thread calls."""
        assert isinstance(self._make_receiver(), Receiver)

    def test_a_receiver_of_nothing_waits_for_nothing(self) -> None:
        """The span thread sleeps until an event arrives."""
        receiver = self._make_receiver()

        receiver.tick(time_ns())

        waits = receiver.in_flight(), receiver.next_due_ns(), receiver.drain(time_ns()), receiver.unread_count()
        assert waits == (set(), None, [], 0), "the receiver waits although no unit came in"

    def test_every_event_names_its_receiver(self) -> None:
        """Several receivers share one event queue."""
        receiver = self._make_receiver()

        self.arrive()

        owners = [entry[0] for entry in self._entries()]
        assert owners, "a unit that comes in must put an event into the event queue"
        assert all(owner is receiver for owner in owners), "each event must be put for the receiver itself"

    def test_a_unit_is_handed_on_once(self) -> None:
        """It is opened once, if its beginning was seen, and handed on once when it is complete."""
        receiver = self._make_receiver()

        self.arrive()
        self._read(receiver)

        assert [*self.port.handed_on.values()] == [1], "one unit came in; it must be handed on once"
        assert self.port.opened_units in ([], [*self.port.handed_on]), (
            "the opened unit must be the one that is handed on"
        )
        assert not receiver.in_flight(), "in_flight must be empty after all units are handed on"

    def test_nothing_is_done_before_it_is_read(self) -> None:
        """The application's thread puts events, and the span thread does all other work."""
        self._make_receiver()

        self.arrive()

        assert not self.port.opened_units, "a unit was opened on the application's thread"
        assert not self.port.handed_on, "a unit was handed on by the application's thread"

    def test_units_that_were_never_read_are_counted(self) -> None:
        """Units that a stuck span thread does not read are counted."""
        receiver = self._make_receiver()

        self.arrive()
        self.arrive()
        with ThreadPoolExecutor(1) as thread:
            before = thread.submit(receiver.unread_count).result()
        self._read(receiver)

        assert (before, receiver.unread_count()) == (2, 0), "unread_count must count the units without a read event"

    def test_drain_hands_on_a_running_unit(self) -> None:
        """``drain`` returns the unit, and the receiver no longer waits for it."""
        receiver = self._make_receiver()

        began = self.begin()
        self._read(receiver)
        traces = {key.trace_id for key in receiver.open_keys()}
        running = receiver.drain(time_ns())

        assert traces == {key.trace_id for key in running}, "open_keys must return the units that have begun"
        assert len(running) == began, "drain must return the units that had not ended"
        assert [*self.port.handed_on] == running, "drain must hand on every unit"
        assert (receiver.in_flight(), receiver.next_due_ns()) == (set(), None), (
            "the receiver waits for a handed-on unit"
        )

    def test_nothing_comes_in_once_it_is_closed(self) -> None:
        """Later units are not even counted."""
        receiver = self._make_receiver()

        receiver.close()
        self.arrive()

        assert (self._entries(), receiver.unread_count()) == ([], 0), "a closed receiver took a unit"

    def _make_receiver(self) -> Receiver:
        self.event_queue: EventQueue[Receiver] = EventQueue(soft_events=1_000)
        self.port = _CountingListener()
        return self.make(self.event_queue, self.port)

    def _entries(self) -> list[tuple[Receiver, object, int]]:
        return [entry for _ in range(len(self.event_queue)) if (entry := self.event_queue.take()) is not None]

    def _read(self, receiver: Receiver) -> None:
        """Read events like the span thread, and let time pass until ended units are handed on."""
        now_ns = time_ns()
        for _, event, _ in self._entries():
            receiver.handle(event, now_ns)
        receiver.tick(now_ns)
        for _ in range(_MAX_TICKS):
            due_ns = receiver.next_due_ns()
            if not receiver.in_flight():
                return
            assert due_ns is not None, "a unit is in flight, but next_due_ns gives no time"
            receiver.tick(due_ns)


@dataclass(slots=True)
class _CountingListener:
    """A ``UnitListener`` that counts the units that are handed on, and ends every span."""

    opened_units: list[UnitKey] = field(default_factory=list)
    handed_on: Counter[UnitKey] = field(default_factory=Counter)

    def metrics_shared(self, key: UnitKey, metrics: Set[str]) -> None:
        pass

    def unit_opened(self, key: UnitKey, now_ns: int) -> None:
        self.opened_units.append(key)

    def span_ended(
        self, key: UnitKey, span: SpanData, pending: PendingSpan | None, now_ns: int, *, size_bytes: int = 0
    ) -> None:
        self.handed_on[key] += span.span_id == key.span_id
        if pending is not None:
            pending.end()

    def unit_not_sampled(self, facts: SamplingContext, pending: PendingSpan, now_ns: int) -> None:
        self.handed_on[facts.key] += 1
        pending.end()

    def unit_excluded(self, facts: SamplingContext) -> None:
        self.handed_on[facts.key] += 1

    def events_lost(self, key: UnitKey, now_ns: int) -> None:
        assert key in self.opened_units, "events were lost of a unit that was not opened"

    def unit_complete(
        self,
        unit: Unit,
        pending: Mapping[int, PendingSpan],
        now_ns: int,
        *,
        lost: Outcome = Outcome.INCOMPLETE,
        reason: str | None = None,
    ) -> None:
        self.handed_on[unit.key] += 1
        for span in pending.values():
            span.end()

    def sample_submitted(
        self, unit: Unit, samples: Samples, pending: PendingSpan | None, *, sampled: bool, now_ns: int
    ) -> None:
        self.handed_on[unit.key] += 1
        if pending is not None:
            pending.end()
