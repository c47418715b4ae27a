"""The random number of a conversation: its own, by its raw id, the same on every replica."""

from __future__ import annotations

from spanscore.config import Rule, RuleCondition
from spanscore.core.span import SamplingContext, UnitKey
from spanscore.pipeline.sampling import RateSampler

IDS = [f"conversation {one}" for one in range(2_000)]
EVERYTHING = Rule(rate=1.0, name="everything", when=RuleCondition())


def sampler(rate: float = 0.5, **options: object) -> RateSampler:
    return RateSampler({"units": 0.0}, sessions={"talks": rate}, **options)  # type: ignore[arg-type]


def taken(of: RateSampler) -> set[str]:
    return {one for one in IDS if of.session(one, "talks").take}


def make_unit(conversation_id: str | None, number: int = 1) -> SamplingContext:
    return SamplingContext(UnitKey(number, number), is_trace_root=True, conversation_id=conversation_id)


def test_replicas_agree_and_a_smaller_rate_takes_a_part_of_what_a_larger_one_takes() -> None:
    assert taken(sampler(0.5)) == taken(sampler(0.5))
    assert taken(sampler(0.1)) < taken(sampler(0.5))
    assert 900 < len(taken(sampler(0.5))) < 1_100


def test_another_key_takes_others() -> None:
    assert taken(sampler(key=b"mine")) != taken(sampler())


def test_no_rule_raises_the_rate_of_a_session() -> None:
    assert taken(sampler(rules=[EVERYTHING])) == taken(sampler())


def test_a_unit_may_be_scored_where_its_session_is_wanted_or_is_not_known_yet() -> None:
    of = sampler()

    assert {one for one in IDS if of.could_sample(make_unit(one))} == taken(of)
    assert of.could_sample(make_unit(None))
    assert not of.could_sample(make_unit(""))


def test_what_a_traces_ids_alone_decide_is_not_said_while_a_metric_scores_sessions() -> None:
    trace_id = (1).to_bytes(16)

    assert (sampler().could_sample_trace(trace_id), sampler(0.0).could_sample_trace(trace_id)) == (None, False)


def test_the_probability_is_the_rates_and_upstream_has_no_part_in_it() -> None:
    decision = sampler(0.25, head_sampling_rate=0.1).session(IDS[0], "talks")

    assert (decision.probability, decision.upstream, decision.rule) == (0.25, 1.0, "base")
