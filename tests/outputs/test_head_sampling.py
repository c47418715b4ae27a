"""The known decision of a head sampler equals its real one."""

import pytest
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    DEFAULT_OFF,
    DEFAULT_ON,
    Decision,
    ParentBased,
    StaticSampler,
    TraceIdRatioBased,
)
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags, TraceState, set_span_in_context

from spanscore.outputs.spans import SamplingPrediction

STATE = TraceState([("vendor", "1")])
PARENTS = [None] + [
    SpanContext(0xA1, 0xB2, is_remote=remote, trace_flags=TraceFlags(flags), trace_state=STATE)
    for remote in (False, True)
    for flags in (0, 1, 3)
]


class Own(ParentBased):
    """May decide anything."""


class Renamed(StaticSampler):
    """May decide anything."""


SAMPLERS = {
    "always on": ALWAYS_ON,
    "always off": ALWAYS_OFF,
    "default": DEFAULT_ON,
    "default off": DEFAULT_OFF,
    "by ratio": TraceIdRatioBased(1.0),
    "parent, by ratio": ParentBased(TraceIdRatioBased(0.5)),
    "distrusts remote parents": ParentBased(ALWAYS_ON, remote_parent_sampled=ALWAYS_OFF),
    "trusts nobody": ParentBased(ALWAYS_OFF, local_parent_sampled=ALWAYS_OFF, remote_parent_sampled=ALWAYS_OFF),
    "keeps all": ParentBased(ALWAYS_ON, remote_parent_not_sampled=ALWAYS_ON, local_parent_not_sampled=ALWAYS_ON),
    "a subclass": Own(ALWAYS_ON),
    "another subclass": Renamed(Decision.RECORD_AND_SAMPLE),
    "none of the SDK's": object(),
}


@pytest.mark.parametrize("parent", PARENTS, ids=repr)
@pytest.mark.parametrize("name", SAMPLERS)
def test_what_is_kept_for_sure_would_have_been_kept_as_it_is(name, parent):
    sampler = SAMPLERS[name]
    if not SamplingPrediction(sampler).keeps(parent):
        return
    context = set_span_in_context(NonRecordingSpan(parent)) if parent is not None else None

    said = sampler.should_sample(context, 0xA1, "span", SpanKind.INTERNAL, {"a": 1}, ())

    assert said.decision.is_sampled()
    assert dict(said.attributes) == {"a": 1}
    assert (said.trace_state or None) == (STATE if parent is not None else None)


@pytest.mark.parametrize(
    ("name", "roots", "under_sampled"),
    [
        ("always on", True, True),
        ("default", True, True),
        ("parent, by ratio", False, True),
        ("default off", False, True),
        ("by ratio", False, False),
        ("always off", False, False),
        ("trusts nobody", False, False),
        ("a subclass", False, False),
        ("another subclass", False, False),
        ("none of the SDK's", False, False),
    ],
)
def test_the_usual_samplers_need_not_be_asked_and_others_are(name, roots, under_sampled):
    keeps = SamplingPrediction(SAMPLERS[name]).keeps

    assert keeps(None) is roots
    assert keeps(SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(1))) is under_sampled
