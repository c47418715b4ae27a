"""The span thread sleeps until the next thing is due, wherever it is due."""

from threading import Event

from tests.live import QUESTION, a_line, rag

from spanscore.config import Outputs
from spanscore.core.span import UnitKey
from spanscore.testing import make_span

MS = 1_000_000


def test_a_unit_is_closed_when_its_quiet_time_is_over():
    with a_line(outputs=Outputs(span=False, evaluation_span=False, event=False)) as (scorer, _):
        scorer._line.assembler.quiet_ns = 800_000_000
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})

        assert scorer.flush(5)  # the slow tick comes every ten seconds
        assert scorer.status().outcomes["grounded"] == {"scored": 1}


def test_it_sleeps_until_the_first_unit_is_quiet_and_no_longer():
    with a_line() as (scorer, _):
        thread, assembler, clock = scorer._line.span_thread, scorer._line.assembler, [1_000 * MS]
        thread.now_ns, assembler.quiet_ns = lambda: clock[0], 50 * MS
        scorer._line.units.unit_opened(UnitKey(1, 10), clock[0])
        scorer._line.units.span_ended(UnitKey(1, 10), make_span(trace_id=1, span_id=10), None, clock[0])

        assert thread._timeout_s() == 0.05
        clock[0] += 50 * MS
        thread.tick()

        assert len(assembler) == 0


def test_a_full_inbox_does_not_hold_up_what_is_due():
    with a_line() as (scorer, _):
        thread, looks = scorer._line.span_thread, []
        thread.units.tick = lambda now_ns: looks.append(len(scorer._line.event_queue))
        for _ in range(1_200):
            scorer._line.event_queue.put(scorer._line.receivers[0], None)

        thread.tick()

        assert looks == [700, 200, 0]


def test_a_flush_is_not_given_way_to_the_application():
    with a_line() as (scorer, _):
        duty, seen = scorer._line.duty, []
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        assert duty.at_ease
        scorer._line.units.tick = lambda now_ns, tick=scorer._line.units.tick: (seen.append(duty.at_ease), tick(now_ns))

        assert scorer.flush(5)

        assert not any(seen)
        assert duty.at_ease


def test_a_process_without_an_application_gives_way_to_nobody():
    with a_line() as (scorer, _):
        assert not scorer._line.duty.gives_way


def test_a_flush_looks_at_all_units_only_when_the_last_it_waits_for_is_out():
    with a_line() as (scorer, _):
        thread, units, looks = scorer._line.span_thread, scorer._line.units, []
        waited_for = units.waited_for
        units.waited_for = lambda: (looks.append(len(units.in_flight)), waited_for())[1]
        keys = [UnitKey(1, number) for number in range(1, 101)]
        units.parking.in_flight.update(dict.fromkeys(keys))
        flushes = [Event(), Event()]
        thread._markers += [({*keys[:50]}, flushes[0], None), ({*keys}, flushes[1], None)]

        for key in keys:
            thread._answer_markers()
            del units.parking.in_flight[key]
            assert flushes[0].is_set() == (key.span_id > 50)
        assert not flushes[1].is_set()
        thread._answer_markers()

        assert flushes[1].is_set()
        assert len(looks) == 3
