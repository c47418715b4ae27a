"""The span thread sleeps until the next thing is due, wherever it is due."""

from tests.live import QUESTION, a_line, rag

from spanscore.model.span import UnitKey
from spanscore.testing import a_span

MS = 1_000_000


def test_a_unit_is_closed_when_its_quiet_time_is_over():
    with a_line(attach=["instruments"]) as (scorer, _):
        scorer._line.assembler._quiet_ns = 800_000_000
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})

        assert scorer.flush(5)  # the slow tick comes every ten seconds
        assert scorer.status().outcomes["grounded"] == {"scored": 1}


def test_it_sleeps_until_the_first_unit_is_quiet_and_no_longer():
    with a_line() as (scorer, _):
        thread, assembler, clock = scorer._line.span_thread, scorer._line.assembler, [1_000 * MS]
        thread._clock, assembler._quiet_ns = lambda: clock[0], 50 * MS
        scorer._line.units.opened(UnitKey(1, 10), clock[0])
        scorer._line.units.ended(UnitKey(1, 10), a_span(trace_id=1, span_id=10), None, clock[0])

        assert thread._timeout_s() == 0.05
        clock[0] += 50 * MS
        thread.tick()

        assert len(assembler) == 0
