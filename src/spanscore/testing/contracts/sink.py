"""SinkContract: what every sink promises."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from typing import Final

from spanscore.core.score import Outcome, Scale, Score
from spanscore.core.span import Unit, UnitKey
from spanscore.protocols import Sink
from spanscore.testing.builders import make_score, make_span, make_unit

__all__ = ["SinkContract"]

_QUOTE: Final = "what the user asked, word for word"


class SinkContract:
    """Subclass it in a test and say how your sink is made; each check makes one, and calls it on another thread.

    Attributes:
        quotes: whether the sink, as it is made here, may write explanations, which quote prompts and answers.
    """

    quotes = False

    def make(self) -> Sink:
        """Return a new sink."""
        raise NotImplementedError

    def read_output(self) -> str | None:
        """Return what the sink that was made last has written so far; None where nothing can look."""
        return None

    def test_it_is_a_sink(self) -> None:
        """It has ``emit`` and ``shutdown``."""
        assert isinstance(self.make(), Sink)

    def test_any_unit_with_any_scores_is_taken(self) -> None:
        """It raises for no unit and no scores that there can be."""
        emit = self.make().emit

        _on_one_thread(*(partial(emit, unit, scores) for unit in _units() for scores in _SCORES))

    def test_what_it_is_given_stays_as_it_was(self) -> None:
        """The next sink gets the same unit and the same scores."""
        unit, scores = _units()[0], [make_score(), make_score(metric="other")]
        before = deepcopy([dict(span.attributes) for span in unit.spans]), list(scores)

        _on_one_thread(partial(self.make().emit, unit, scores))

        assert ([dict(span.attributes) for span in unit.spans], scores) == before, "emit changed what it was given"

    def test_every_score_of_a_unit_is_written(self) -> None:
        """All scores of one call arrive."""
        metrics = ("first_of_all", "last_of_all")

        _on_one_thread(partial(self.make().emit, _units()[0], [make_score(metric=name) for name in metrics]))

        written = self.read_output()
        lost = [name for name in metrics if written is not None and name not in written]
        assert not lost, f"of {len(metrics)} scores these were not written: {lost}"

    def test_scores_of_a_unit_that_come_one_after_the_other_are_all_written(self) -> None:
        """A score that was waited for for longer comes in a call of its own."""
        emit, unit, metrics = self.make().emit, _units()[0], ("the_first_to_come", "the_last_to_come")

        _on_one_thread(*(partial(emit, unit, [make_score(metric=name)]) for name in metrics))

        written = self.read_output()
        lost = [name for name in metrics if written is not None and name not in written]
        assert not lost, f"of scores of one unit that came in {len(metrics)} calls these were not written: {lost}"

    def test_explanations_stay_home_unless_they_may_leave(self) -> None:
        """Content leaves only where that was asked for."""
        _on_one_thread(partial(self.make().emit, _units()[0], [make_score(explanation=_QUOTE)]))

        kept = _QUOTE not in (self.read_output() or "")
        assert self.quotes or kept, (
            "an explanation was written, which quotes content; quotes = True says that it may be"
        )

    def test_shutdown_twice_is_as_good_as_once(self) -> None:
        """Two scorers may share a sink, and each of them ends."""
        sink = self.make()

        _on_one_thread(partial(sink.emit, _units()[0], [make_score()]), sink.shutdown, sink.shutdown)

    def test_a_sink_that_was_given_nothing_can_be_shut_down(self) -> None:
        """A scorer may end before its first score."""
        _on_one_thread(self.make().shutdown)


_SCORES: Final[tuple[list[Score], ...]] = (
    [make_score()],
    [make_score(), make_score(metric="other"), make_score(None, metric="third", outcome=Outcome.JUDGE_ERROR)],
    [make_score(None, outcome=Outcome.TIMEOUT, reason="the judge did not answer", error_type="timeout")],
    [make_score(None, reason="the answer has no statements")],
    [make_score(-0.4, scale=Scale(range=(-1.0, 1.0), negatives_are_zero=True))],
    [make_score(17.0, scale=Scale(kind="ordinal", range=None))],
    [make_score(probability=None, threshold=None)],
)


def _units() -> list[Unit]:
    """Return units as sinks meet them: of a sampled trace, of one that is not, of another process, and without its root."""
    roots = [make_span(), make_span(trace_flags=0), make_span(resource={"service.name": "shop"}, trace_state="ot=th:8")]
    return [*(make_unit(root).without_content() for root in roots), Unit(UnitKey(1, 1), (), complete=False)]


def _on_one_thread(*calls: Callable[[], object]) -> None:
    """Make the calls, in order, on one thread that is not the maker's."""
    with ThreadPoolExecutor(1) as thread:
        for call in calls:
            thread.submit(call).result()
