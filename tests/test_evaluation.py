"""A metric that computes runs in a pool, and one that is given up there leaves no trace on the application's stderr."""

import gc
import threading
import warnings

from tests.line import QUESTION, a_line, rag

from spanscore.metrics import BaseMetric, Finding


class Computes(BaseMetric):
    """Blocks its thread until it is let go."""

    cpu_bound = True
    requires = {"single_turn": ("response",)}  # noqa: RUF012

    def __init__(self, name, gate):
        self.name, self.gate = name, gate

    async def measure(self, sample):
        self.gate.wait(10)
        return Finding(value=1.0)


def test_what_times_out_before_its_turn_leaves_no_coroutine_behind():
    gate = threading.Event()
    metrics = [Computes(f"computes_{n}", gate) for n in range(4)]  # two threads: two of them wait
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with a_line(*metrics, timeout=0.2) as (scorer, _):
            rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
            assert scorer.flush(5)
            assert [*scorer.status().outcomes.values()] == [{"timeout": 1}] * 4
            gate.set()
            pool = scorer._line.evaluation._pool
            while pool._unfinished:
                threading.Event().wait(0.01)
        gc.collect()

    assert [str(one.message) for one in said if "never awaited" in str(one.message)] == []
