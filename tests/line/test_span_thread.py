"""The span thread sleeps until the next thing is due, wherever it is due."""

from tests.live import QUESTION, a_line, rag


def test_a_unit_is_closed_when_its_quiet_time_is_over():
    with a_line(attach=["instruments"]) as (scorer, _):
        scorer._line.assembler._quiet_ns = 800_000_000
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})

        assert scorer.flush(5)  # the slow tick comes every ten seconds
        assert scorer.status().outcomes["grounded"] == {"scored": 1}
