"""The overview: is the application good, is what we see of it complete, and what does the judging cost."""

from __future__ import annotations

from typing import Any

import queries as q
from foreign import of_others
from grafana_foundation_sdk.models.dashboard import Dashboard
from panels import (
    BYTES,
    COUNT,
    GREEN,
    RED,
    SECONDS,
    SHARE,
    USD,
    at_end,
    bars,
    board,
    choice,
    lines,
    link,
    number,
    over_time,
    rows,
    source,
    stacked,
    steps,
    window,
)
from releases import release_choices, two_releases

from spanscore import semconv
from spanscore.monitoring import promql
from spanscore.monitoring.names import label, series

UID = "spanscore-overview"
ONE_METRIC = "spanscore-metric"


def overview() -> Dashboard:
    """Return the dashboard."""
    entered = series(semconv.ELIGIBLE)
    variables = [
        source("datasource", "prometheus", "Metrics"),
        choice("service", "Service", f"label_values({entered}, {q.SERVICE})"),
        choice("metric", "Metric", f"label_values({entered}{{{q.OF_SERVICE}}}, {promql.METRIC})"),
        *release_choices(),
        window(),
    ]
    parts = {
        "Quality": _quality(),
        "Two releases": two_releases(),
        "What was evaluated": _evaluated(),
        "What people say": _said(),
        "What others say": of_others(),
        "The judge": _judge(),
        "The judge's accounts": _accounts(),
        "The way": _way(),
        "Over the wire": _wire(),
        "Spool and workers": _durable(),
    }
    about = "How good the answers are, how much of the traffic is behind that, and what judging it costs."
    return board("spanscore: overview", UID, about, variables, [link("One metric", ONE_METRIC)], parts)


def _quality() -> list[Any]:
    low, high = promql.interval(q.sums(q.RANGE))
    columns = [
        ("mean", promql.mean(q.sums(q.RANGE))),
        ("low", low),
        ("high", high),
        ("pass rate", q.pass_rate(q.RANGE)),
    ]
    by_series = (promql.METRIC, q.SERVICE, q.SERIES)
    behind = [
        ("scores", q.counted(semconv.SCORED, by=by_series)),
        ("mean", promql.mean(q.sums(q.RANGE, by=by_series))),
    ]
    low, high = promql.interval(q.sums())
    return [
        rows(
            "Quality over the selected time",
            "Weighted mean quality (1 is good, whatever the metric's own scale) with its 95 % interval. Means whose intervals"
            " overlap may well be the same. A low mean: open *One metric* for this metric and read its worst traces.",
            columns,
        ),
        rows(
            "The judges and series behind these means",
            "A series is the metric's version, the judge's model and its votes. Two rows of one metric and service: the measure"
            " changed within the selected time, and the panels here show both together. Choose a time with one of them, or"
            " see *By series* in *One metric*.",
            behind,
            unit=COUNT,
        ),
        lines(
            "Weighted mean with 95 % interval",
            "Each point looks back over *Window*. When a line falls and its interval no longer reaches the old level,"
            " compare with the last deployment, then see *One metric* by model, workflow and series. A wide interval"
            " means few scores: choose a longer window or a higher sample rate.",
            over_time(promql.mean(q.sums()), f"mean {q.NAMED}"),
            over_time(low, f"low {q.NAMED}"),
            over_time(high, f"high {q.NAMED}"),
            unit=SHARE,
        ),
        lines(
            "Pass rate",
            "Weighted share of scored units labelled *pass*. When it falls, search the traces for `spanscore.verdict=fail`.",
            over_time(q.pass_rate(), q.NAMED),
            unit=SHARE,
        ),
    ]


def _evaluated() -> list[Any]:
    chosen = q.outcomes(q.RANGE, f'!~"{q.NOT_CHOSEN}"', by=())
    readable = q.outcomes(q.RANGE, f'!~"{q.NOT_CHOSEN}|{q.WITHOUT_SAMPLE}"', by=())
    return [
        bars(
            "From traffic to score",
            "Unit × metric, each bar a part of the one above. *Entered* to *chosen*: sampling and filters, as configured."
            " *Chosen* to *readable*: no question and answer found, or a field the metric needs is missing: see"
            " `scorer.status()` and `Extract`. *Readable* to *scored*: the judge failed, or had no time.",
            at_end(promql.entered(q.RANGE, q.WHERE, ()), "entered"),
            at_end(chosen, "chosen"),
            at_end(readable, "readable"),
            at_end(q.counted(semconv.SCORED, by=()), "scored"),
        ),
        stacked(
            "Outcomes",
            "How each unit × metric ended, in whichever process. A growing `missing_field` or `no_sample`: a deployment changed"
            " the shape of inputs or outputs. `queue_full`: lower the sample rate. `timeout`, `judge_error`: see *The judge*.",
            over_time(q.outcomes(q.STEP, '!="handed_over"', by=(q.OUTCOME,)), f"{{{{{q.OUTCOME}}}}}"),
        ),
        lines(
            "Coverage",
            "Share of eligible units that got a score. It follows the sample rate; a fall without a change of configuration"
            " means outcomes other than *scored* are growing.",
            over_time(q.coverage(), q.NAMED),
            unit=SHARE,
        ),
        lines(
            "Pending",
            "Units that entered and have not ended. A line that only rises: the judge is slower than the traffic; lower the"
            " sample rate, or raise the judge's concurrency.",
            over_time(q.level(semconv.PENDING, where=q.WHERE, by=q.EACH), q.NAMED),
        ),
        number(
            "Not accounted for",
            "Eligible − outcomes − pending. Other than 0 for more than a scrape: units were lost without a trace, which is a"
            " bug of spanscore: please report it.",
            at_end(f"sum({promql.unaccounted(q.WHERE)})"),
            steps=steps((None, RED), (0, GREEN), (1, RED)),
        ),
    ]


def _said() -> list[Any]:
    def grown(instrument: str) -> str:
        return promql.increase(instrument, q.STEP, q.OF_SERVICE, (promql.METRIC, q.PASS))

    named = f"{{{{{promql.METRIC}}}}} {{{{{q.PASS}}}}}"
    return [
        stacked(
            "Labels",
            "What was said of units by `feedback()`, each unit once. They are in no mean and no alert. *To*: votes that were"
            " changed, by what they were changed to.",
            over_time(grown(semconv.LABELS), named),
            over_time(grown(semconv.LABELS_CHANGED), f"to {named}"),
        ),
        stacked(
            "Judged because of feedback",
            "Units that somebody found no good (`sampling.feedback`). *judged*: their scores have the stratum `feedback`,"
            " and are in no mean. *too_late*: give `within` or `max_bytes` more. *not_kept*: the dice, or it ran in another"
            " process.",
            over_time(promql.increase(semconv.FEEDBACK, q.STEP, q.OF_SERVICE, (q.RESULT,)), f"{{{{{q.RESULT}}}}}"),
        ),
    ]


def _judge() -> list[Any]:
    calls = (q.MODEL, q.SERVICE)
    model = f"{{{{{q.MODEL}}}}}"
    return [
        lines(
            "Failed evaluations",
            "Share of evaluations, by weight, that ended without a value though they were tried. Above some percent the means"
            " are uncertain (see the bounds in *One metric*). Look at *Errors of the judge* and the judge's own limits.",
            over_time(promql.failed_share(q.MOVING, q.WHERE), q.NAMED),
            unit=SHARE,
        ),
        stacked(
            "Errors of the judge",
            "Failed calls by `error.type`, retried ones included. `http_429`: the account finds its own level, see *Places*."
            " `timeout`: a faster model, or a longer `judge.timeout`. `not_allowed`, `no_such_model`, `quota`: a person must"
            " act. `unparseable`: a model that follows a schema.",
            over_time(q.counted(semconv.JUDGE_ERRORS, q.STEP, by=(q.ERROR, q.MODEL)), f"{{{{{q.ERROR}}}}} {model}"),
        ),
        stacked(
            "Cost",
            "USD of the calls whose price is known, per interval. Too much: lower `sampling.rates` of the dearest metric, or"
            " judge with a smaller model; the interval of the mean says what that costs in precision.",
            over_time(
                q.counted(semconv.JUDGE_COST, q.STEP, by=(promql.METRIC, q.MODEL)), f"{{{{{promql.METRIC}}}}} {model}"
            ),
            unit=USD,
        ),
        lines(
            "Latency",
            "Half, 95 % and 99 % of the judge's calls end within this time. Above the hold time scores come late, as"
            " evaluation spans beside a unit that says `pending`.",
            *[
                over_time(q.within(share, semconv.JUDGE_DURATION, calls), f"p{share * 100:g} {model}")
                for share in (0.5, 0.95, 0.99)
            ],
            unit=SECONDS,
        ),
        stacked(
            "Tokens",
            "Sent to and received from the judge; `cached_input` is what its provider had read before. A jump without more"
            " traffic: prompts have grown, as retrieved contexts do. *Not told*: answers whose tokens are not known, nor their"
            " cost.",
            over_time(q.counted(semconv.JUDGE_TOKENS, q.STEP, by=(q.TOKENS, q.MODEL)), f"{{{{{q.TOKENS}}}}} {model}"),
            over_time(q.counted(semconv.JUDGE_UNMETERED, q.STEP, by=(q.MODEL,)), f"answers not told {model}"),
        ),
        lines(
            "Calls per score",
            "Calls of the judge per scored unit. It is a property of the metric; when it rises, calls fail and are repeated.",
            over_time(f"{q.counted(semconv.JUDGE_CALLS, q.MOVING)} / {q.counted(semconv.SCORED, q.MOVING)}", q.NAMED),
        ),
    ]


def _accounts() -> list[Any]:
    def grown(instrument: str) -> str:
        return promql.increase(instrument, q.STEP, q.OF_SERVICE, q.ACCOUNT)

    places = [
        over_time(q.level(instrument, by=q.ACCOUNT), f"{what} {q.OF_ACCOUNT}")
        for what, instrument in (
            ("places", semconv.JUDGE_PLACES),
            ("out", semconv.JUDGE_INFLIGHT),
            ("waiting", semconv.JUDGE_WAITING),
        )
    ]
    return [
        lines(
            "Places",
            "Questions that may be out with an account at once, those that are, and those that wait. Places follow what the"
            " provider allows. Many that wait, for long: scores come late; ask the provider for more, or lower the rates.",
            *places,
        ),
        lines(
            "Breaker",
            "0 closed, 1 half-open, 2 open. Open: the provider is away, or refuses the key or the account; nothing is sent and"
            " questions wait, up to `judge.max_wait`. `scorer.status()` says why.",
            over_time(q.worst("max", semconv.JUDGE_BREAKER, q.ACCOUNT), q.OF_ACCOUNT),
        ),
        stacked(
            "Refused, repeated, answered before",
            "*Refused* for load: it costs no attempt, the question waits; some are how an account's level is found. *Repeated*:"
            " no connection, no answer in time, an error on the provider's side. *Known*: answered from `judge.cache`.",
            over_time(grown(semconv.JUDGE_THROTTLED), f"refused {q.OF_ACCOUNT}"),
            over_time(grown(semconv.JUDGE_RETRIES), f"repeated {q.OF_ACCOUNT}"),
            over_time(grown(semconv.JUDGE_CACHED), f"known {q.OF_ACCOUNT}"),
        ),
        lines(
            "Wait",
            "Half and 95 % of the questions were sent within this time. Past `judge.max_wait` they end as `rate_limited`.",
            *[
                over_time(
                    q.within(share, semconv.JUDGE_WAIT, q.ACCOUNT, where=q.OF_SERVICE),
                    f"p{share * 100:g} {q.OF_ACCOUNT}",
                )
                for share in (0.5, 0.95)
            ],
            unit=SECONDS,
        ),
        lines(
            "Budget",
            "Share of each budget that is spent in its present window, and the factor by which it lowers the sampling rates. A"
            " factor under 0.5 for hours: the budget is less than half of what the rates ask for; raise it, or lower them.",
            over_time(f"{_of_budget(semconv.BUDGET_SPENT)} / {_of_budget(semconv.BUDGET_LIMIT)}", f"spent {_BUDGET}"),
            over_time(q.worst("min", semconv.BUDGET_FACTOR, _EACH_BUDGET), f"factor {_BUDGET}"),
            unit=SHARE,
        ),
        lines(
            "Declined",
            "Share of the units that were to be judged which the judge, or its provider's filter, declined. They are no random"
            " ones: above some percent the mean is of the others. Another judge, or a filter set for this use.",
            over_time(promql.declined_share(q.MOVING, q.WHERE), q.NAMED),
            unit=SHARE,
        ),
        stacked(
            "Verdicts against their own reason",
            "Verdicts whose reason says the opposite, in plain English forms: *fails to* in the reason of a pass. A few are"
            " noise. More since another model, or as many as failures: read some.",
            over_time(
                q.counted(semconv.JUDGE_CONTRADICTIONS, q.STEP, by=(promql.METRIC, q.MODEL)),
                f"{{{{{promql.METRIC}}}}} {{{{{q.MODEL}}}}}",
            ),
        ),
        lines(
            "Judge on labelled samples",
            "With `canary`: the share of the labels with which a judge agreed in its last run and at first, and the p of what"
            " changed. A p near 0: the judge is another one, and a drop may be its. Where replicas have runs of their own, the"
            " worst.",
            over_time(q.worst("min", semconv.CANARY_AGREEMENT, q.EACH), f"agrees {q.NAMED}"),
            over_time(q.worst("min", semconv.CANARY_FIRST_AGREEMENT, q.EACH), f"at first {q.NAMED}"),
            over_time(q.worst("min", semconv.CANARY_P, q.EACH), f"p {q.NAMED}"),
            unit=SHARE,
        ),
    ]


_EACH_BUDGET = (q.UNIT, q.OVER, promql.METRIC, q.SERVICE)
_BUDGET = " ".join(f"{{{{{name}}}}}" for name in _EACH_BUDGET)


def _of_budget(instrument: str) -> str:
    return q.level(instrument, by=_EACH_BUDGET)


def _way() -> list[Any]:
    def grown(instrument: str, *by: str) -> str:
        return promql.increase(instrument, q.STEP, q.OF_SERVICE, (*by, q.SERVICE))

    return [
        lines(
            "Job queue",
            "Jobs waiting or in work, and how many may. A queue at its capacity refuses work (`queue_full`).",
            over_time(q.level(semconv.QUEUE_SIZE), f"jobs {{{{{q.SERVICE}}}}}"),
            over_time(q.level(semconv.QUEUE_CAPACITY), f"capacity {{{{{q.SERVICE}}}}}"),
        ),
        lines(
            "Waiting room",
            "Units whose spans wait for their scores. It empties within the hold time; if it does not, the exporter is stuck.",
            over_time(q.level(semconv.HOLD_UNITS), f"{{{{{q.SERVICE}}}}}"),
        ),
        stacked(
            "Why units left",
            "Mostly `deadline`: the judge is slower than the hold time. `overflow`: more units wait than there is room for.",
            over_time(grown(semconv.HOLD_RELEASED, q.REASON), f"{{{{{q.REASON}}}}} {{{{{q.SERVICE}}}}}"),
        ),
        stacked(
            "Captured and lost",
            "Units captured, and what did not get through. *Refused*: the inbox was full. *Abandoned*: a run that never ended."
            " *Spans lost*: the provider was shut down before the scorer. All but *captured* is traffic nobody sees.",
            over_time(grown(semconv.CAPTURE_UNITS), f"captured {{{{{q.SERVICE}}}}}"),
            over_time(grown(semconv.CAPTURE_REFUSED), f"refused {{{{{q.SERVICE}}}}}"),
            over_time(grown(semconv.CAPTURE_ABANDONED), f"abandoned {{{{{q.SERVICE}}}}}"),
            over_time(grown(semconv.HOLD_LOST), f"spans lost {{{{{q.SERVICE}}}}}"),
        ),
        stacked(
            "Cases collected",
            "Units that met a condition of `collect.when`. *written*: to the file. *folded*: their question is in there."
            " *lost*: the file could not be written for long, or they came faster than its disk; `status()` says why.",
            over_time(grown(semconv.COLLECTED_CASES, q.RESULT), f"{{{{{q.RESULT}}}}} {{{{{q.SERVICE}}}}}"),
        ),
    ]


def _wire() -> list[Any]:
    def grown(instrument: str, *by: str) -> str:
        return promql.increase(instrument, q.STEP, q.OF_SERVICE, (*by, q.SERVICE))

    return [
        stacked(
            "Requests received",
            "Requests with spans that `spanscore serve` was sent, and of these what it refused: `bytes`, `traces` and `inbox`"
            " are overload, and come again from a client that retries.",
            over_time(grown(semconv.RECEIVE_REQUESTS), f"received {{{{{q.SERVICE}}}}}"),
            over_time(grown(semconv.RECEIVE_REFUSED, q.REASON), f"refused {{{{{q.REASON}}}}} {{{{{q.SERVICE}}}}}"),
        ),
        stacked(
            "Spans received",
            "Spans, and what is not scored of them. *Not valid*: ids that are none. *Orphans*: their root never came, mostly as"
            " its sender lost it. *Late*: their unit had closed: raise `units.quiet`.",
            over_time(grown(semconv.RECEIVE_SPANS), f"received {{{{{q.SERVICE}}}}}"),
            over_time(grown(semconv.RECEIVE_REJECTED), f"not valid {{{{{q.SERVICE}}}}}"),
            over_time(grown(semconv.UNITS_ORPHANS), f"orphans {{{{{q.SERVICE}}}}}"),
            over_time(grown(semconv.UNITS_LATE), f"late {{{{{q.SERVICE}}}}}"),
        ),
        lines(
            "Bytes received",
            "Bodies of requests, without compression: what has to be read, whatever is scored of it.",
            over_time(grown(semconv.RECEIVE_BYTES), f"{{{{{q.SERVICE}}}}}"),
        ),
        lines(
            "Open traces",
            "Traces with spans that wait for their unit to be whole. It levels off; where it grows, roots do not come.",
            over_time(q.level(semconv.UNITS_OPEN), f"{{{{{q.SERVICE}}}}}"),
        ),
    ]


def _durable() -> list[Any]:
    def grown(instrument: str, only: str = "") -> str:
        where = ",".join(filter(None, (q.OF_SERVICE, only)))
        return promql.increase(instrument, q.STEP, where, (q.SERVICE,))

    of_service, fullest = f"{{{{{q.SERVICE}}}}}", (q.SERVICE,)
    partition = label(semconv.PARTITION)
    lag = q.worst("max", semconv.WORKER_LAG, (partition, q.SERVICE))
    return [
        lines(
            "Jobs in the spool",
            "Of a service's fullest file. Where it only grows, units come faster than they are scored: start another worker on"
            " the disk, or lower the rates. *Put aside*: jobs that ended three processes; `spanscore spool FILE` lists them.",
            over_time(q.worst("max", semconv.SPOOL_DEPTH, fullest), f"jobs {of_service}"),
            over_time(q.worst("max", semconv.SPOOL_POISON, fullest), f"put aside {of_service}"),
        ),
        lines(
            "Oldest job in the spool",
            "For how long it has waited. Past `spool.max_age` it ends as `too_late`. Minutes: the judge; hours: no process"
            " takes them.",
            over_time(q.worst("max", semconv.SPOOL_OLDEST, fullest), of_service),
            unit=SECONDS,
        ),
        lines(
            "Bytes in the spool",
            "What its jobs hold. At `spool.max_bytes`, or where the disk is full, further units end as `queue_full`.",
            over_time(q.worst("max", semconv.SPOOL_BYTES, fullest), of_service),
            unit=BYTES,
        ),
        lines(
            "Lag",
            "Messages of the topic that are not committed, and those of the partition that has most. It rises where workers are"
            " too few, or the judge's limits are reached; one partition alone: spans whose root does not come hold it back.",
            over_time(f"sum by ({q.SERVICE}) ({lag})", f"all {of_service}"),
            over_time(f"max by ({q.SERVICE}) ({lag})", f"longest {of_service}"),
        ),
        stacked(
            "Handed over",
            "Unit × metric that another process scores: they are counted there, and in no panel twice.",
            over_time(grown(semconv.EVALUATIONS, f'{q.OUTCOME}="handed_over"'), of_service),
        ),
        stacked(
            "Dropped and skipped",
            "*Dropped*: open traces that went on to another worker with their partition; it reads them again. *Skipped*:"
            " messages that the topic had deleted before they were read: raise its retention, and add workers.",
            over_time(grown(semconv.WORKER_DROPPED), f"dropped {of_service}"),
            over_time(grown(semconv.WORKER_SKIPPED), f"skipped {of_service}"),
        ),
    ]
