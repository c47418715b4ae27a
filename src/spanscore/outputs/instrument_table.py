"""Table of every OpenTelemetry instrument with its kind, unit and description, grouped by the source of its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal, NamedTuple, TypeAlias, get_args

from spanscore import semconv

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]


class Instrument(NamedTuple):
    """Kind, unit and description of an instrument.

    Attributes:
        unit: UCUM code; in braces the counted item.
    """

    kind: Kind
    unit: str
    description: str


_counter, _gauge, _histogram = (partial(Instrument, kind) for kind in get_args(Kind))

SUMS: Mapping[str, Instrument] = {
    semconv.SCORED: _counter("1", "Scored units"),
    semconv.WEIGHT: _counter("1", "Sum of w = 1/probability over scored units that have a quality or a category"),
    semconv.WEIGHT_QUALITY: _counter("1", "Sum of w·quality over scored units, w = 1/probability"),
    semconv.WEIGHT_QUALITY2: _counter("1", "Sum of w·quality² over scored units, w = 1/probability"),
    semconv.WEIGHT2: _counter("1", "Sum of w² over scored units, w = 1/probability"),
    semconv.WEIGHT2_QUALITY: _counter("1", "Sum of w²·quality over scored units, w = 1/probability"),
    semconv.WEIGHT2_QUALITY2: _counter("1", "Sum of w²·quality² over scored units, w = 1/probability"),
    semconv.APPLICABLE_WEIGHT: _counter(
        "1", "Sum of w over units for which the judge decided whether the metric's condition holds"
    ),
    semconv.APPLICABLE_WEIGHT2: _counter(
        "1", "Sum of w² over units for which the judge decided whether the metric's condition holds"
    ),
    semconv.JUDGE_CALLS: _counter("{call}", "Calls of a judge, including failed calls"),
    semconv.JUDGE_TOKENS: _counter("{token}", "Tokens sent to and received from a judge"),
    semconv.JUDGE_COST: _counter("USD", "Cost of judge calls with a known price"),
    semconv.JUDGE_ERRORS: _counter("{call}", "Failed calls of a judge"),
    semconv.JUDGE_CALLS_WITHOUT_USAGE: _counter(
        "{call}", "Answers of a judge without a credible count of their tokens"
    ),
    semconv.JUDGE_SELF_CONTRADICTIONS: _counter(
        "{verdict}", "Verdicts of a judge that their own reason contradicts, by English patterns"
    ),
    semconv.DECLINED: _counter("{evaluation}", "Units that the judge declined to judge"),
    semconv.ANNOTATIONS: _counter("{label}", "Units that people labelled, by the value of the first label"),
    semconv.ANNOTATION_CHANGES: _counter("{label}", "Labels that were changed, by the new value"),
    semconv.FEEDBACK: _counter("{unit}", "Units that a person rated as bad, by whether they could be judged"),
    semconv.COLLECTED_CASES: _counter(
        "{case}", "Units that became cases of a data set, had a question that it contains already, or were lost"
    ),
}
"""Instruments with sums of scores, judge calls, human labels and collected cases."""
MOMENTS = (
    semconv.WEIGHT,
    semconv.WEIGHT_QUALITY,
    semconv.WEIGHT_QUALITY2,
    semconv.WEIGHT2,
    semconv.WEIGHT2_QUALITY,
    semconv.WEIGHT2_QUALITY2,
)
"""Instruments with the sums for a mean and its variance."""
APPLICABLE = (semconv.APPLICABLE_WEIGHT, semconv.APPLICABLE_WEIGHT2)
"""Instruments with Σw and Σw² for the share of traffic to which a metric applies.

Each has one sum for units to which the metric applies (y = 1), and one for the others (y = 0). Both give Σwy and Σw²y, too.
"""
READ: Mapping[str, Instrument] = {
    semconv.HOLD_RELEASED: _counter("{unit}", "Units released from the hold, by reason"),
    semconv.HOLD_LOST: _counter("{span}", "Held spans that could not be exported any more"),
    semconv.HEAD_SAMPLING: _counter(
        "{unit}",
        "Sampled units, by the source of the share that a head sampler kept: th (tracestate), configured or unknown",
    ),
    semconv.CAPTURE_UNITS: _counter("{unit}", "Units captured by the callback handler"),
    semconv.CAPTURE_REFUSED: _counter("{unit}", "Units refused because the event queue was full"),
    semconv.CAPTURE_ABANDONED: _counter("{unit}", "Captured units with an abandoned run"),
    semconv.RECEIVE_REQUESTS: _counter("{request}", "Requests with spans that were received"),
    semconv.RECEIVE_SPANS: _counter("{span}", "Valid spans in accepted requests"),
    semconv.RECEIVE_BYTES: _counter("By", "Bodies of requests, without compression"),
    semconv.RECEIVE_REFUSED: _counter("{request}", "Requests that were refused, by reason"),
    semconv.RECEIVE_REJECTED: _counter("{span}", "Invalid spans in accepted requests"),
    semconv.RECEIVE_UNREAD: _counter(
        "{trace}", "Traces that are not read, because another instrumentation of their library is read"
    ),
    semconv.UNITS_ORPHANS: _counter("{span}", "Spans without a root, which belong to no unit"),
    semconv.UNITS_LATE: _counter("{span}", "Spans that arrived after the close of their unit"),
    semconv.REDELIVERED: _counter(
        "{unit}", "Units that arrived again, and were recognised by the id of their copy or of their row in the spool"
    ),
    semconv.WORKER_DROPPED: _counter(
        "{trace}", "Open traces that another worker reads again, because it got their partition"
    ),
    semconv.WORKER_SKIPPED: _counter(
        "{message}", "Messages that the topic deleted before they were read, or whose reading raised twice"
    ),
    semconv.UNITS_OPEN: _gauge("{trace}", "Traces with spans that wait for their unit to be complete"),
    semconv.SPOOL_DEPTH: _gauge("{job}", "Jobs in the spool, of all processes that share its file"),
    semconv.SPOOL_BYTES: _gauge("By", "Used bytes of the spool's file"),
    semconv.SPOOL_OLDEST: _gauge("s", "Age of the oldest job in the spool"),
    semconv.SPOOL_DEAD_LETTERS: _gauge(
        "{job}", "Dead letters: jobs that could not be read, or during which three processes crashed"
    ),
    semconv.QUEUE_SIZE: _gauge("{job}", "Jobs waiting or being scored"),
    semconv.QUEUE_CAPACITY: _gauge("{job}", "Places in the job queue"),
    semconv.HOLD_UNITS: _gauge("{unit}", "Units in the hold"),
}
"""Instruments whose numbers a part of the scorer returns on request."""
POINTS: Mapping[str, Instrument] = {
    semconv.JUDGE_CONCURRENCY_LIMIT: _gauge(
        "",
        "Highest number of concurrent questions to an account; below 1, one question is sent in each period of "
        "(round trip ÷ this number)",
    ),
    semconv.JUDGE_ACTIVE_CALLS: _gauge("", "Questions sent to an account and not answered yet"),
    semconv.JUDGE_QUEUE_SIZE: _gauge("", "Questions that wait to be sent to an account"),
    semconv.JUDGE_CIRCUIT_BREAKER_STATE: _gauge(
        "", "State of an account's circuit breaker: 0 closed, 1 half-open, 2 open"
    ),
    semconv.JUDGE_THROTTLED: _counter("{call}", "Requests that an account refused because of overload"),
    semconv.JUDGE_RETRIES: _counter("{call}", "Requests that repeated a failed request"),
    semconv.JUDGE_CACHE_HITS: _counter("{call}", "Questions that were answered without a request"),
    semconv.BUDGET_SPENT: _gauge("", "Amount of a budget that is spent in its present window"),
    semconv.BUDGET_LIMIT: _gauge("", "Amount of a budget per window"),
    semconv.BUDGET_FACTOR: _gauge("", "Factor by which a budget multiplies the sampling rates, at most 1"),
    semconv.JUDGE_CHECK_AGREEMENT: _gauge("", "Share of the labels with which a judge agreed in its last run"),
    semconv.JUDGE_CHECK_FIRST_AGREEMENT: _gauge("", "Share of the labels with which a judge's first answers agreed"),
    semconv.JUDGE_CHECK_P: _gauge("", "Exact p-value of the change of a judge's answers since its first run"),
    semconv.WORKER_LAG: _gauge("{message}", "Messages of a partition that are not settled"),
    semconv.WORKER_TIME_LAG: _gauge("s", "Age of the oldest message of a partition that is not settled"),
}
"""Instruments with readings of accounts, budgets, watched judges and partitions; several scorers may share one."""
INSTRUMENTS: Mapping[str, Instrument] = {
    semconv.QUALITY_HISTOGRAM: _histogram("1", "Quality of scored units; 1 is good; the exemplar is a scored trace"),
    semconv.JURY_DISAGREEMENT: _histogram("1", "Highest quality among the jurors of a score less the lowest, 0 to 1"),
    semconv.JUDGE_DURATION: _histogram("s", "Duration of judge calls"),
    semconv.JUDGE_QUEUE_DURATION: _histogram("s", "Time for which questions waited to be sent"),
    semconv.ELIGIBLE: _counter("{evaluation}", "Eligible units, per metric"),
    semconv.EVALUATIONS: _counter("{evaluation}", "Eligible units with an outcome, per metric and outcome"),
    semconv.PENDING: _gauge("{evaluation}", "Eligible units that have no outcome yet"),
    semconv.MISSING_WEIGHT: _counter("1", "Sum of w over units that should have a score and have none, by outcome"),
    semconv.MISSING_WEIGHT2: _counter("1", "Sum of w² over units that should have a score and have none, by outcome"),
    semconv.COMPARED_MISSING_WEIGHT: _counter(
        "1", "Sum of w over units that should have a score and have none, by compared value"
    ),
    semconv.COMPARED_MISSING_WEIGHT2: _counter(
        "1", "Sum of w² over units that should have a score and have none, by compared value"
    ),
    **SUMS,
    **READ,
    **POINTS,
}
"""Every instrument by name. No gauge has unit ``1``, to whose name some translators to Prometheus append ``_ratio``."""
