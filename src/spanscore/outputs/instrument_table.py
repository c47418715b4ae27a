"""Every instrument by name: what it is, and how its numbers come to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from spanscore import semconv


class Instrument(NamedTuple):
    """Kind, unit and description of an instrument.

    Attributes:
        unit: UCUM; in braces = what is counted.
    """

    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    description: str


SUMS: Mapping[str, Instrument] = {
    semconv.SCORED: Instrument("counter", "1", "Scored units"),
    semconv.WEIGHT: Instrument("counter", "1", "Sum of w = 1/probability over scored units that have a quality"),
    semconv.WEIGHT_QUALITY: Instrument("counter", "1", "Sum of w·quality"),
    semconv.WEIGHT_QUALITY2: Instrument("counter", "1", "Sum of w·quality²"),
    semconv.WEIGHT2: Instrument("counter", "1", "Sum of w²"),
    semconv.WEIGHT2_QUALITY: Instrument("counter", "1", "Sum of w²·quality"),
    semconv.WEIGHT2_QUALITY2: Instrument("counter", "1", "Sum of w²·quality²"),
    semconv.APPLICABLE_WEIGHT: Instrument(
        "counter", "1", "Sum of w over units of which the judge said whether the metric's condition holds"
    ),
    semconv.APPLICABLE_WEIGHT2: Instrument("counter", "1", "Sum of w² over them"),
    semconv.JUDGE_CALLS: Instrument("counter", "{call}", "Calls of a judge, failed ones included"),
    semconv.JUDGE_TOKENS: Instrument("counter", "{token}", "Tokens sent to and received from a judge"),
    semconv.JUDGE_COST: Instrument("counter", "USD", "Cost of judge calls whose price is known"),
    semconv.JUDGE_ERRORS: Instrument("counter", "{call}", "Failed calls of a judge"),
    semconv.JUDGE_CALLS_WITHOUT_USAGE: Instrument(
        "counter", "{call}", "Answers without a credible count of their tokens"
    ),
    semconv.JUDGE_SELF_CONTRADICTIONS: Instrument(
        "counter", "{verdict}", "Verdicts of a judge that their own reason speaks against, in plain English forms"
    ),
    semconv.DECLINED: Instrument("counter", "{evaluation}", "Units that the judge declined to judge"),
    semconv.ANNOTATIONS: Instrument("counter", "{label}", "Units that people labelled, by their first word"),
    semconv.ANNOTATION_CHANGES: Instrument(
        "counter", "{label}", "Labels that were changed, by the word that came instead"
    ),
    semconv.FEEDBACK: Instrument(
        "counter", "{unit}", "Units that somebody found no good: whether they could be judged"
    ),
    semconv.COLLECTED_CASES: Instrument(
        "counter",
        "{case}",
        "Units that became cases of a data set, had a question that is in there, or were lost to it",
    ),
}
"""Sums of scores and labels."""
MOMENTS = (
    semconv.WEIGHT,
    semconv.WEIGHT_QUALITY,
    semconv.WEIGHT_QUALITY2,
    semconv.WEIGHT2,
    semconv.WEIGHT2_QUALITY,
    semconv.WEIGHT2_QUALITY2,
)
"""The sums from which a mean and its variance come."""
APPLICABLE = (semconv.APPLICABLE_WEIGHT, semconv.APPLICABLE_WEIGHT2)
"""The sums of the share to which a metric applies: y is 0 or 1, so Σwy and Σw²y are Σw and Σw² of the ones."""
READ: Mapping[str, Instrument] = {
    semconv.HOLD_RELEASED: Instrument("counter", "{unit}", "Units that left the waiting room, by reason"),
    semconv.HOLD_LOST: Instrument("counter", "{span}", "Held spans that could not be exported any more"),
    semconv.HEAD_SAMPLING: Instrument(
        "counter",
        "{unit}",
        "Chosen units, by the source of the share that a head sampler kept: th, configured, unknown",
    ),
    semconv.CAPTURE_UNITS: Instrument("counter", "{unit}", "Units captured by the callback handler"),
    semconv.CAPTURE_REFUSED: Instrument("counter", "{unit}", "Units refused, as the event queue was full"),
    semconv.CAPTURE_ABANDONED: Instrument("counter", "{unit}", "Captured units whose run was abandoned"),
    semconv.RECEIVE_REQUESTS: Instrument("counter", "{request}", "Requests with spans that came over the wire"),
    semconv.RECEIVE_SPANS: Instrument("counter", "{span}", "Valid spans of those that were taken"),
    semconv.RECEIVE_BYTES: Instrument("counter", "By", "Bodies of requests, without compression"),
    semconv.RECEIVE_REFUSED: Instrument("counter", "{request}", "Requests that were refused, by reason"),
    semconv.RECEIVE_REJECTED: Instrument("counter", "{span}", "Spans that are not valid, in requests that were taken"),
    semconv.RECEIVE_UNREAD: Instrument(
        "counter", "{trace}", "Traces that are not read, as another instrumentation of their library is"
    ),
    semconv.UNITS_ORPHANS: Instrument("counter", "{span}", "Spans of which the root never came, and that are no unit"),
    semconv.UNITS_LATE: Instrument("counter", "{span}", "Spans that came when their unit had closed"),
    semconv.REDELIVERED: Instrument(
        "counter", "{unit}", "Units that came again and were recognised, by a copy's or a spool row's ids"
    ),
    semconv.WORKER_DROPPED: Instrument(
        "counter", "{trace}", "Open traces that another worker reads again, as their partition went there"
    ),
    semconv.WORKER_SKIPPED: Instrument(
        "counter", "{message}", "Messages that the topic no longer had when they were to be read"
    ),
    semconv.UNITS_OPEN: Instrument("gauge", "{trace}", "Traces with spans that wait for their unit to be whole"),
    semconv.SPOOL_DEPTH: Instrument("gauge", "{job}", "Jobs in the spool, of all processes that share its file"),
    semconv.SPOOL_BYTES: Instrument("gauge", "By", "What they hold"),
    semconv.SPOOL_OLDEST: Instrument("gauge", "s", "For how long the oldest of them has waited"),
    semconv.SPOOL_DEAD_LETTERS: Instrument(
        "gauge", "{job}", "Jobs that were put aside: each ended several processes, or cannot be read"
    ),
    semconv.QUEUE_SIZE: Instrument("gauge", "{job}", "Jobs waiting or in work"),
    semconv.QUEUE_CAPACITY: Instrument("gauge", "{job}", "Places in the job queue"),
    semconv.HOLD_UNITS: Instrument("gauge", "{unit}", "Units in the waiting room"),
}
"""Readings of the parts of a scorer."""
POINTS: Mapping[str, Instrument] = {
    semconv.JUDGE_CONCURRENCY_LIMIT: Instrument(
        "gauge", "", "Questions that may be out with an account at once; below 1 a pace"
    ),
    semconv.JUDGE_ACTIVE_CALLS: Instrument("gauge", "", "Questions that are out with an account"),
    semconv.JUDGE_QUEUE_SIZE: Instrument("gauge", "", "Questions that wait to be sent to an account"),
    semconv.JUDGE_CIRCUIT_BREAKER_STATE: Instrument(
        "gauge", "", "Breaker of an account: 0 closed, 1 half-open, 2 open"
    ),
    semconv.JUDGE_THROTTLED: Instrument("counter", "{call}", "Requests that an account refused for load"),
    semconv.JUDGE_RETRIES: Instrument("counter", "{call}", "Requests that repeated a failed one"),
    semconv.JUDGE_CACHE_HITS: Instrument("counter", "{call}", "Questions that were answered without a request"),
    semconv.BUDGET_SPENT: Instrument("gauge", "", "Spent of a budget in its present window"),
    semconv.BUDGET_LIMIT: Instrument("gauge", "", "A budget, per window"),
    semconv.BUDGET_FACTOR: Instrument("gauge", "", "By which a budget multiplies the sampling rates, at most 1"),
    semconv.JUDGE_CHECK_AGREEMENT: Instrument(
        "gauge", "", "Share of the labels with which a judge agreed in the last run"
    ),
    semconv.JUDGE_CHECK_FIRST_AGREEMENT: Instrument("gauge", "", "Share of them with which its first answers did"),
    semconv.JUDGE_CHECK_P: Instrument("gauge", "", "Exact p of the change of a judge's answers since its first run"),
    semconv.WORKER_LAG: Instrument("gauge", "{message}", "Messages of a partition that are not settled"),
    semconv.WORKER_TIME_LAG: Instrument("gauge", "s", "Age of the oldest message of a partition that is not settled"),
}
"""Readings of accounts, budgets, judges on labelled samples and partitions; several scorers may share one."""
INSTRUMENTS: Mapping[str, Instrument] = {
    semconv.QUALITY_HISTOGRAM: Instrument(
        "histogram", "1", "Quality of scored units, 1 is good; the exemplar is a scored trace"
    ),
    semconv.JURY_DISAGREEMENT: Instrument(
        "histogram", "1", "Highest quality among the jurors of a score less the lowest, 0 to 1"
    ),
    semconv.JUDGE_DURATION: Instrument("histogram", "s", "Duration of judge calls"),
    semconv.JUDGE_QUEUE_DURATION: Instrument("histogram", "s", "For how long questions waited to be sent"),
    semconv.ELIGIBLE: Instrument("counter", "{evaluation}", "Units that entered, per metric"),
    semconv.EVALUATIONS: Instrument("counter", "{evaluation}", "Units that ended, per metric and outcome"),
    semconv.PENDING: Instrument("gauge", "{evaluation}", "Units that entered and have not ended"),
    semconv.MISSING_WEIGHT: Instrument("counter", "1", "Sum of w over units that the mean lacks, by outcome"),
    semconv.MISSING_WEIGHT2: Instrument("counter", "1", "Sum of w² over units that the mean lacks, by outcome"),
    semconv.COMPARED_MISSING_WEIGHT: Instrument(
        "counter", "1", "Sum of w over units that a compared value's mean lacks, of all outcomes"
    ),
    semconv.COMPARED_MISSING_WEIGHT2: Instrument(
        "counter", "1", "Sum of w² over units that a compared value's mean lacks, of all outcomes"
    ),
    **SUMS,
    **READ,
    **POINTS,
}
"""Every instrument by name. None is a gauge of unit ``1``: to such a name some translators to Prometheus append ``_ratio``."""
