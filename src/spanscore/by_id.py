"""UnitsById: what a scorer is asked, and told, about units and sessions that it has seen; a base of OnlineScorer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from spanscore import semconv
from spanscore.core.context import checked_session
from spanscore.core.sample import Annotation, HumanValue, UnitId
from spanscore.wiring.feedback import seconds_since_1970_ns, text_of, uuid_of, value_of

if TYPE_CHECKING:
    from spanscore.config.sampling import Rule
    from spanscore.wiring.build import Line
    from spanscore.wiring.lifecycle import Closing
    from spanscore.wiring.preview import Preview
    from spanscore.wiring.receiver_set import Doors

__all__ = ["UnitsById"]


class UnitsById:
    """The methods of ``OnlineScorer`` that are about one unit, one session, or the last thousand."""

    _doors: Doors
    _line: Line
    _closing: Closing

    def trace_id(self, run_id: UUID) -> str | None:
        """Return the trace id (32 hex digits) of a recent root run; None when it is unknown or was not recorded."""
        attachment = self._doors.attachment
        known = None if attachment is None else attachment.handler.trace_id(run_id)
        return None if known is None else f"{known:032x}"

    def unit_id(self, run_id: UUID | str) -> UnitId | None:
        """Return both ids of the unit that a run is of, for the page that shows its answer; None when it is not known.

        By its root's run a unit is known while it runs, and then as one of the last 1,000; by any other run of it until five
        seconds after its end.

        Args:
            run_id: as ``collect_runs``, ``astream_events``, a callback or ``config={"run_id": …}`` have it.

        Raises:
            ValueError: it is no UUID.
        """
        asked = uuid_of("run_id", run_id)
        attachment = self._doors.attachment
        key = None if attachment is None else attachment.handler.memory.unit(attachment.handler.id_here(asked))
        return None if key is None else UnitId(f"{key.trace_id:032x}", f"{key.span_id:016x}")

    def feedback(
        self,
        trace_id: str | int | None = None,
        value: HumanValue | None = None,
        *,
        name: str = "user_feedback",
        span_id: str | int | None = None,
        annotator: str = semconv.ANNOTATOR_HUMAN,
        comment: str | None = None,
        when: datetime | float | None = None,
        key: str | None = None,
    ) -> bool:
        """Say what a person thought of a unit: a span under the unit's, an event, and a count. Does not block. Any thread.

        Ids alone are enough: the unit need not have been scored, nor have run in this process. The same call again says
        nothing new; another value under the same name by the same annotator is the label's next revision, and the last by time
        is the one that holds.

        Args:
            trace_id: of the unit, 32 hex digits or the number; None with a ``key``.
            value: True, False or a number from 0, worst, to 1; under a name with a scale (``feedback_scales``), one of its
                words.
            name: of the question that was answered, in lower snake case, and no metric's.
            span_id: of the unit's span, 16 hex digits or the number; None = the one unit of the trace that this process knows,
                of the last 10,000.
            annotator: who said so.
            comment: content: exported only where content is.
            when: it was said, a datetime with a time zone or seconds since 1970; None = now. To be given where a unit is
                labelled from several processes: by it equal calls are known, and which of two votes is the last.
            key: in place of the ids: what the run's metadata have as ``feedback_key``. Of no unit that this process knows, the
                label is an event with that key.

        Returns:
            Whether it was taken; not when the scorer is closed, or has no room for more at the moment.

        Raises:
            ValueError: an id, the name, the value or the time is none, or without ``span_id`` the unit is not known; the
                message says what is allowed.
        """
        if self._closing.begun:
            return False
        label = Annotation(
            name=text_of("name", name),
            value=value_of(value),
            annotator=text_of("annotator", annotator),
            comment=None if comment is None else text_of("comment", comment),
            when_ns=None if when is None else seconds_since_1970_ns(when),
            unit=self._doors.unit_of(trace_id, span_id, key),
            key=None if key is None else text_of("key", key),
        )
        return self._doors.label(label)

    def end_session(self, session_id: str) -> bool:
        """End a conversation: its session metrics score it when the turns that have ended are in. Does not block; any thread.

        Runs of it that have not ended by now are turns of what comes after.

        Returns:
            Whether one of this id was open. False where it is unknown, has ended, was forgotten (of more than ten times
            ``Sessions.max_open`` the oldest is), the scorer is shut down, or no metric scores conversations. Of spans that
            others make the id is known a moment after they have ended.

        Raises:
            TypeError: the id is no text, or an empty one.
        """
        known = checked_session(session_id)
        return not self._closing.begun and self._line.sessions.end(known)

    def explain(self, trace_id: str | int) -> list[dict[str, Any]]:
        """Return why a trace was scored or not: an entry for each of its units among the last 1,000 closed, else ``[]``.

        Per metric: its own rate (``base``) and those of the rules that matched, the rule that won, R (``randomness``), the T
        that it met, the T of the probability (hex digits), upstream's probability, the outcome, None until it is there, and why
        it is no score (``reason``), None where it is one or says all.

        A unit whose spans are still there (of the last 100 that some metric took, 4 MB together) also has, when each metric has
        its outcome: its ``spans`` with the translation whose scope they have, ``root``, ``kind``, ``why`` that is the root,
        ``parts`` of its sample with the span and attribute that each came from, and what would ``change`` an outcome
        (`spanscore.explain` returns the same of stored spans). No content. Any thread.

        Raises:
            ConfigurationError: ``trace_id`` is neither 32 hex digits nor the number.
        """
        from spanscore.wiring.explained import recent_explained  # not for applications that never look

        return recent_explained(self._line, trace_id)

    def preview(
        self,
        rules: Sequence[Rule] | None = None,
        *,
        rate: float | None = None,
        rates: Mapping[str, float] | None = None,
    ) -> Preview:
        """Return what rules and rates would take of the last 1,000 closed units; ``print`` it for tables. Asks no judge.

        By the dice that the units have, so that it is what would have been taken: how many by each rule and metric, how many
        that are on average, at what cost, and ten of them by name. A cost is what the metric's judge has cost per unit so far
        in this process; None where it has not been asked. Any thread.

        Facts that are not kept cannot be previewed, and ``unknown`` counts such units: rules on scores; rules on metadata that
        neither ``capture.metadata``, ``monitoring.dimensions`` nor a rule in force names; rules on tools and models of units
        that no rate or rule could have taken, which were not followed; and rules of any kind on units of other
        instrumentations that sampling left out when they began. Units that were submitted to be scored, or came from another
        process, are not among the 1,000.

        Args:
            rules: None = those in force; ``[]`` = none.
            rate: of every metric; None = those in force.
            rates: metric → one of its own, beside ``rate``.

        Raises:
            ConfigurationError: a rate is outside [0, 1] or of no metric, or a rule is none.
        """
        from spanscore.wiring.preview import recent_preview  # not for those who never look

        return recent_preview(self._line, rules, rate, rates)
