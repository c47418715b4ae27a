"""The span thread sleeps until the next thing is due, wherever it is due."""

from concurrent.futures import ThreadPoolExecutor

from tests.live import QUESTION, a_line, rag
from tests.servers.server import poll

from spanscore.core.span import UnitKey
from spanscore.scorer import pipeline_of
from spanscore.testing import make_span
from spanscore.wiring.span_thread import SpanThread

MS = 1_000_000


def test_it_sleeps_until_the_oldest_unit_is_too_old_and_no_longer():
    with a_line() as (scorer, _):
        thread, assembler, clock = pipeline_of(scorer).span_thread, pipeline_of(scorer).assembler, [1_000 * MS]
        thread.now_ns, assembler.max_age_ns = lambda: clock[0], 50 * MS
        pipeline_of(scorer).units.unit_opened(UnitKey(1, 10), clock[0])
        pipeline_of(scorer).units.span_ended(
            UnitKey(1, 10), make_span(trace_id=1, span_id=11, parent_id=10), None, clock[0]
        )

        assert thread.timeout_s() == 0.05
        clock[0] += 50 * MS
        thread.tick()

        assert len(assembler) == 0


def test_a_full_inbox_does_not_hold_up_what_is_due():
    with a_line() as (scorer, _):
        thread, looks = pipeline_of(scorer).span_thread, []
        thread.units.tick = lambda now_ns: looks.append(len(pipeline_of(scorer).event_queue))
        for _ in range(1_200):
            pipeline_of(scorer).event_queue.put(pipeline_of(scorer).receivers[0], None)

        thread.tick()

        assert looks == [700, 200, 0]


def test_a_flush_is_not_given_way_to_the_application():
    with a_line() as (scorer, _):
        duty, units, seen = pipeline_of(scorer).duty, pipeline_of(scorer).units, []
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        assert duty.has_rests
        units.tick = lambda now_ns, tick=units.tick: (seen.append(duty.has_rests), tick(now_ns))

        assert scorer.flush(5)

        assert not any(seen)
        assert duty.has_rests


def test_a_process_without_an_application_gives_way_to_nobody():
    with a_line() as (scorer, _):
        assert not pipeline_of(scorer).duty.yields_cpu


def test_a_flush_looks_at_all_units_only_when_the_last_it_waits_for_is_out(monkeypatch):
    monkeypatch.setattr(SpanThread, "alive", True)  # the test is the span thread
    with a_line() as (scorer, _), ThreadPoolExecutor(2) as pool:
        thread, units, looks = pipeline_of(scorer).span_thread, pipeline_of(scorer).units, []
        waited_for, units.tick = units.unexported_units, lambda now_ns: None
        units.unexported_units = lambda: (looks.append(len(units.hold.in_flight)), waited_for())[1]
        keys, flushes = [UnitKey(1, number) for number in range(1, 101)], []
        for part in (keys[:50], keys[50:]):
            units.hold.in_flight.update(dict.fromkeys(part))
            flushes.append(pool.submit(thread.flush, 20))
            poll(lambda: (thread.tick(), len(looks) == 2 * len(flushes))[1], deadline_s=5, what="the flush to wait")

        for key in keys:
            assert flushes[key.span_id > 50].done() is False
            del units.hold.in_flight[key]
            thread.tick()
            assert key.span_id != 50 or flushes[0].result(5)

        assert flushes[1].result(5)
        assert len(looks) == 6  # each flush at its begin, at the next tick, and when its last unit is out
        monkeypatch.undo()
