import os
import random

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from tests.live import QUESTION, a_line, a_trace, rag

from spanscore.outputs.spans import OwnIdGenerator, id_generator_of


def test_the_applications_random_numbers_stay_what_they_are():
    with a_line() as (scorer, _):
        random.seed(7)
        before = [random.random() for _ in range(3)]
        random.seed(7)
        after = []
        for _ in range(3):
            rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
            assert scorer.flush(5)
            after.append(random.random())

    assert after == before


def test_ids_fill_their_bits_and_differ():
    ids = OwnIdGenerator()
    spans, traces = [ids.generate_span_id() for _ in range(500)], [ids.generate_trace_id() for _ in range(500)]

    assert len({*spans}) == len({*traces}) == 500
    assert max(spans).bit_length() == 64
    assert max(traces).bit_length() == 128
    assert ids.is_trace_id_random()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_draws_other_ids():
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.write(write, str(OwnIdGenerator().generate_trace_id()).encode())
        os._exit(0)
    os.waitpid(child, 0)

    assert int(os.read(read, 64)) != OwnIdGenerator().generate_trace_id()


def test_a_generator_that_somebody_chose_is_asked():
    class Numbered(RandomIdGenerator):
        def generate_trace_id(self):
            return 0xA1

    assert isinstance(id_generator_of(TracerProvider().get_tracer("any")), OwnIdGenerator)
    chosen: IdGenerator = Numbered()
    assert id_generator_of(TracerProvider(id_generator=chosen).get_tracer("any")) is chosen
    with a_line(trace=a_trace(id_generator=chosen)) as (scorer, trace):
        rag().invoke(QUESTION, config={"callbacks": [scorer.handler]})
        assert scorer.flush(5)
    assert {span.context.trace_id for span in trace.spans} == {0xA1}
