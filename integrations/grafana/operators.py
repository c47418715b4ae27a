"""The dashboard for operators: receivers, spool and workers, scores and annotations from outside, judges, accounts."""

from __future__ import annotations

from typing import Any

import formulas
import queries as q
from external import of_others
from grafana_foundation_sdk.models.dashboard import Dashboard
from overview import ONE_METRIC, OPERATORS, UID
from panels import (
    BYTES,
    SECONDS,
    SHARE,
    at_end,
    bars,
    board,
    choice,
    lines,
    link,
    over_time,
    source,
    stacked,
    window,
)

from spanscore import semconv
from spanscore.monitoring import promql
from spanscore.monitoring.promql import label, series

_SERVICE = f"{{{{{q.SERVICE}}}}}"


def operators() -> Dashboard:
    """Return the dashboard."""
    entered = series(semconv.ELIGIBLE)
    variables = [
        source("datasource", "prometheus", "Metrics"),
        choice("service", "Service", f"label_values({entered}, {q.SERVICE})"),
        choice("metric", "Metric", f"label_values({entered}{{{q.OF_SERVICE}}}, {promql.METRIC})"),
        window(),
    ]
    parts = {
        "Receivers": _receivers(),
        "Spool and workers": _durable(),
        "Scores and annotations from outside": [*of_others(), *_people()],
        "Judges": _judges(),
        "Accounts of the judges": _accounts(),
    }
    about = (
        "Whether each part of spanscore works: receivers, spool, workers, scores and annotations from outside, judges."
    )
    links = [link("Overview", UID), link("One metric", ONE_METRIC)]
    return board("spanscore: operators", OPERATORS, about, variables, links, parts)


def _grown(instrument: str, *by: str, only: str = "") -> str:
    """Return by how much a counter grew per interval, by service and further labels."""
    where = ",".join(filter(None, (q.OF_SERVICE, only)))
    return promql.increase(instrument, q.STEP, where, (*by, q.SERVICE))


def _receivers() -> list[Any]:
    chosen = q.outcomes(q.RANGE, f'!~"{q.NOT_CHOSEN}"', by=())
    readable = q.outcomes(q.RANGE, f'!~"{q.NOT_CHOSEN}|{q.WITHOUT_SAMPLE}"', by=())
    return [
        bars(
            "From traffic to score",
            "Units times metrics over the selected time; each bar is a part of the bar above. *entered* to *chosen*: sampling"
            " and filters, as configured. *chosen* to *readable*: a unit without question and answer, or without a field that"
            " the metric needs; see `scorer.status()`. *readable* to *scored*: the judge failed or had no time.",
            at_end(formulas.entered(q.RANGE, q.WHERE, ()), "entered"),
            at_end(chosen, "chosen"),
            at_end(readable, "readable"),
            at_end(q.counted(semconv.SCORED, by=()), "scored"),
        ),
        stacked(
            "Captured and lost in the application",
            "Units that the callback handler captured, and those that were lost on the way. *refused*: the event "
            "queue was full."
            " *abandoned*: the run never ended. *spans lost*: the tracer provider was shut down before the scorer.",
            over_time(_grown(semconv.CAPTURE_UNITS), f"captured {_SERVICE}"),
            over_time(_grown(semconv.CAPTURE_REFUSED), f"refused {_SERVICE}"),
            over_time(_grown(semconv.CAPTURE_ABANDONED), f"abandoned {_SERVICE}"),
            over_time(_grown(semconv.HOLD_LOST), f"spans lost {_SERVICE}"),
        ),
        lines(
            "Units whose spans wait for scores",
            "The spans of a unit wait for its scores, at most for the hold time. A line that stays high although there is no"
            " traffic: the exporter is stuck.",
            over_time(q.level(semconv.HOLD_UNITS), _SERVICE),
        ),
        stacked(
            "Why units stopped waiting",
            "*deadline* dominates: the judge is slower than the hold time, and scores come as spans of their own. *overflow*:"
            " more units wait than there is room for.",
            over_time(_grown(semconv.HOLD_RELEASED, q.REASON), f"{{{{{q.REASON}}}}} {_SERVICE}"),
        ),
        stacked(
            "Requests over OTLP",
            "Requests with spans that `spanscore serve` received, and those that it refused. *bytes*, *traces* and "
            "*event queue* are"
            " overload: a client that retries sends them again. They last: start another `serve`, or lower the rates.",
            over_time(_grown(semconv.RECEIVE_REQUESTS), f"received {_SERVICE}"),
            over_time(_grown(semconv.RECEIVE_REFUSED, q.REASON), f"refused: {{{{{q.REASON}}}}} {_SERVICE}"),
        ),
        stacked(
            "Spans over OTLP",
            "Spans that arrived, and spans that are not scored. *not valid*: their ids are malformed. *orphans*: their root"
            " never came; its sender probably lost it. *late*: their unit was closed already; raise `units.idle_timeout`."
            " *unread*: traces of a second instrumentation of one library; give each program its own resource.",
            over_time(_grown(semconv.RECEIVE_SPANS), f"received {_SERVICE}"),
            over_time(_grown(semconv.RECEIVE_REJECTED), f"not valid {_SERVICE}"),
            over_time(_grown(semconv.UNITS_ORPHANS), f"orphans {_SERVICE}"),
            over_time(_grown(semconv.UNITS_LATE), f"late {_SERVICE}"),
            over_time(_grown(semconv.RECEIVE_UNREAD), f"unread traces {_SERVICE}"),
        ),
        lines(
            "Bytes over OTLP",
            "Bodies of the requests without compression, per interval. The receiver reads them all, however few units are"
            " scored. A jump without more requests: prompts or documents became longer.",
            over_time(_grown(semconv.RECEIVE_BYTES), _SERVICE),
            unit=BYTES,
        ),
        lines(
            "Open traces",
            "Traces whose spans wait for the rest of their unit. The line levels off at traffic times "
            "`units.idle_timeout`. A line"
            " that grows: roots do not arrive.",
            over_time(q.level(semconv.UNITS_OPEN), _SERVICE),
        ),
    ]


def _durable() -> list[Any]:
    partition, by_service = label(semconv.PARTITION), (q.SERVICE,)
    lag = q.worst("max", semconv.WORKER_LAG, (partition, q.SERVICE))
    return [
        lines(
            "Job queue in memory, share in use",
            "Share of the places of the job queue that are taken (`limits.queue_size`), of all replicas together. At "
            "100 % further"
            " units end as `queue_full`: the judge is slower than the traffic; lower the sample rate, or add replicas.",
            over_time(f"{q.level(semconv.QUEUE_SIZE)} / {q.level(semconv.QUEUE_CAPACITY)}", _SERVICE),
            unit=SHARE,
            width=24,
        ),
        lines(
            "Jobs in the spool",
            "Jobs in a service's fullest spool file. A line that only grows: units come faster than they are scored; start"
            " another worker, or lower the rates. *put aside*: jobs that ended three processes; `spanscore spool FILE` lists"
            " them.",
            over_time(q.worst("max", semconv.SPOOL_DEPTH, by_service), f"jobs {_SERVICE}"),
            over_time(q.worst("max", semconv.SPOOL_DEAD_LETTERS, by_service), f"put aside {_SERVICE}"),
        ),
        lines(
            "Age of the oldest job in the spool",
            "Minutes: the judge is slow. Hours: no process takes jobs from the file. A job older than `spool.max_age` ends as"
            " `expired`.",
            over_time(q.worst("max", semconv.SPOOL_OLDEST, by_service), _SERVICE),
            unit=SECONDS,
        ),
        lines(
            "Size of the spool",
            "Bytes of all jobs in the file. At `spool.max_bytes`, or if the disk is full, further units end as `queue_full`.",
            over_time(q.worst("max", semconv.SPOOL_BYTES, by_service), _SERVICE),
            unit=BYTES,
        ),
        lines(
            "Lag of the workers",
            "Messages of the topic that no worker has finished. *all* grows: add workers, or the judge's limits are reached."
            " *longest partition* alone grows: it holds spans whose root does not come.",
            over_time(f"sum by ({q.SERVICE}) ({lag})", f"all {_SERVICE}"),
            over_time(f"max by ({q.SERVICE}) ({lag})", f"longest partition {_SERVICE}"),
        ),
        lines(
            "Lag of the workers in time",
            "Age of the oldest message that no worker has finished. Above the retention of the topic messages are lost."
            " A few seconds are usual: `units.idle_timeout`, and the time of a judge.",
            over_time(q.worst("max", semconv.WORKER_TIME_LAG, by_service), _SERVICE),
            unit=SECONDS,
        ),
        stacked(
            "Handed over to another process",
            "Evaluations that another process makes. That process counts them, and no panel counts them twice. None although"
            " a worker is to score: see `score_here` and `remote_scoring` in the configuration.",
            over_time(_grown(semconv.EVALUATIONS, only=f'{q.OUTCOME}="delegated"'), _SERVICE),
        ),
        stacked(
            "Left to other workers, and skipped",
            "*left*: open traces whose partition moved to another worker, which reads them again. *skipped*: messages that the"
            " topic deleted before a worker read them (raise its retention, and add workers), or whose reading raised twice"
            " (the worker's log has the error). Their units have no score.",
            over_time(_grown(semconv.WORKER_DROPPED), f"left {_SERVICE}"),
            over_time(_grown(semconv.WORKER_SKIPPED), f"skipped {_SERVICE}"),
        ),
        stacked(
            "Units that came again",
            "Units that a topic, the spool or a sender of copies delivered a second time. They were recognised and are not"
            " scored again. Some are usual after a restart or a rebalance. Many at all times: a reader cannot commit, or a"
            " sender gets no answer in time.",
            over_time(_grown(semconv.REDELIVERED), _SERVICE),
        ),
    ]


def _people() -> list[Any]:
    def grown(instrument: str) -> str:
        return promql.increase(instrument, q.STEP, q.OF_SERVICE, (promql.METRIC, q.PASS))

    named = f"{{{{{promql.METRIC}}}}} {{{{{q.PASS}}}}}"
    return [
        stacked(
            "Annotations from people",
            "Units that people annotated through `feedback()`, each unit once. *changed to*: annotations that replaced another."
            " Annotations are in no mean and no alert. None for days: check the code that calls `feedback()`.",
            over_time(grown(semconv.ANNOTATIONS), named),
            over_time(grown(semconv.ANNOTATION_CHANGES), f"changed to {named}"),
        ),
        stacked(
            "Judged because of feedback",
            "Units that somebody disliked (`sampling.feedback`). *judged*: the scores are in the source `feedback` and in no"
            " mean. *too_late*: raise `max_age` or `max_bytes`. *not_kept*: sampling left the unit out, or it ran in another"
            " process.",
            over_time(promql.increase(semconv.FEEDBACK, q.STEP, q.OF_SERVICE, (q.RESULT,)), f"{{{{{q.RESULT}}}}}"),
        ),
        stacked(
            "Cases collected for a data set",
            "Units that met a condition of `collect.when`. *written*: the case is in the file. *folded*: the file has a case"
            " with its question. *lost*: the file could not be written, or cases came faster than the disk; see `status()`.",
            over_time(_grown(semconv.COLLECTED_CASES, q.RESULT), f"{{{{{q.RESULT}}}}} {_SERVICE}"),
            width=24,
        ),
    ]


def _judges() -> list[Any]:
    model = f"{{{{{q.MODEL}}}}}"
    return [
        stacked(
            "Errors of the judge, by type",
            "Failed calls by `error.type`, retried calls included. *http_429*: the provider limits; see *Concurrency*."
            " *timeout*: a faster model, or a longer `judge.timeout`. *not_allowed*, *no_such_model*, *quota*: the key, the"
            " name or the account must be mended. *unparseable*: take a model that follows a schema.",
            over_time(q.counted(semconv.JUDGE_ERRORS, q.STEP, by=(q.ERROR, q.MODEL)), f"{{{{{q.ERROR}}}}} {model}"),
        ),
        lines(
            "Duration of the judge's calls",
            "50, 95 and 99 % of the calls end within this time. Above the hold time, scores come late, as spans of their own.",
            *[
                over_time(q.within(share, semconv.JUDGE_DURATION, (q.MODEL,)), f"{share:.0%} {model}")
                for share in (0.5, 0.95, 0.99)
            ],
            unit=SECONDS,
        ),
        lines(
            "Calls per score",
            "Calls of the judge for one score. It is a property of the metric. A line that rises: calls fail and are repeated.",
            over_time(f"{q.counted(semconv.JUDGE_CALLS, q.MOVING)} / {q.counted(semconv.SCORED, q.MOVING)}", q.NAMED),
        ),
        stacked(
            "Tokens of the judge",
            "Tokens that the judge read (*input*) and wrote (*output*); *cached_input* came from its provider's cache, and"
            " *cache_write* was written to it. A jump"
            " without more traffic: prompts became longer. *answers without a count*: neither tokens nor cost are known.",
            over_time(q.counted(semconv.JUDGE_TOKENS, q.STEP, by=(q.TOKENS, q.MODEL)), f"{{{{{q.TOKENS}}}}} {model}"),
            over_time(
                q.counted(semconv.JUDGE_CALLS_WITHOUT_USAGE, q.STEP, by=(q.MODEL,)), f"answers without a count {model}"
            ),
        ),
        lines(
            "Declined by the judge",
            "Share of the sampled units that the judge, or its provider's filter, declined. They are no random units: from some"
            " per cent on, the mean is of the others. Take another judge, or a filter for this use.",
            over_time(promql.declined_share(q.MOVING, q.WHERE), q.NAMED),
            unit=SHARE,
        ),
        stacked(
            "Verdicts that contradict their reason",
            "Verdicts with a reason that says the opposite, such as a pass whose reason says *fails to*. A few are noise. More"
            " with another model, or as many as failures: read some of them.",
            over_time(
                q.counted(semconv.JUDGE_SELF_CONTRADICTIONS, q.STEP, by=(promql.METRIC, q.MODEL)),
                f"{{{{{promql.METRIC}}}}} {model}",
            ),
        ),
        lines(
            "Judge on labelled samples",
            "With `judge_check`: the share of the labels with which a judge agreed in its last run and in its first, "
            "and the p-value"
            " of the change. p near 0: the judge has changed, and a drop may come from it. Several replicas: the worst.",
            over_time(q.worst("min", semconv.JUDGE_CHECK_AGREEMENT, q.EACH), f"last run {q.NAMED}"),
            over_time(q.worst("min", semconv.JUDGE_CHECK_FIRST_AGREEMENT, q.EACH), f"first run {q.NAMED}"),
            over_time(q.worst("min", semconv.JUDGE_CHECK_P, q.EACH), f"p {q.NAMED}"),
            unit=SHARE,
            width=24,
        ),
    ]


_EACH_BUDGET = (q.UNIT, q.OVER, promql.METRIC, q.SERVICE)
_BUDGET = " ".join(f"{{{{{name}}}}}" for name in _EACH_BUDGET)


def _accounts() -> list[Any]:
    def grown(instrument: str) -> str:
        return promql.increase(instrument, q.STEP, q.OF_SERVICE, q.ACCOUNT)

    def of_account(instrument: str, name: str) -> Any:
        return over_time(q.level(instrument, by=q.ACCOUNT), f"{name} {q.OF_ACCOUNT}")

    spent, limit = (q.level(name, by=_EACH_BUDGET) for name in (semconv.BUDGET_SPENT, semconv.BUDGET_LIMIT))
    return [
        lines(
            "Concurrency of an account",
            "*limit*: questions that may be under way at once; it follows the provider's limits. *waiting*: questions beyond"
            " the limit. Sums over the chosen services. Many wait for long: ask the provider for higher limits, or lower"
            " the rates.",
            of_account(semconv.JUDGE_CONCURRENCY_LIMIT, "limit"),
            of_account(semconv.JUDGE_ACTIVE_CALLS, "under way"),
            of_account(semconv.JUDGE_QUEUE_SIZE, "waiting"),
        ),
        lines(
            "Breaker of an account",
            "0 is closed, which is normal; 1 is half-open; 2 is open: the provider is away, or refuses the key or the account."
            " While it is open, questions wait up to `judge.queue_timeout`. `scorer.status()` shows why.",
            over_time(
                q.worst("max", semconv.JUDGE_CIRCUIT_BREAKER_STATE, (*q.ACCOUNT, q.SERVICE)),
                f"{q.OF_ACCOUNT} {_SERVICE}",
            ),
        ),
        stacked(
            "Questions refused, repeated and cached",
            "*refused* by the provider for load: the question waits, without a lost attempt; a few are normal, as the limit is"
            " found by them. *repeated* after a lost connection, a timeout or a server's error. *cached*: from `judge.cache`.",
            over_time(grown(semconv.JUDGE_THROTTLED), f"refused {q.OF_ACCOUNT}"),
            over_time(grown(semconv.JUDGE_RETRIES), f"repeated {q.OF_ACCOUNT}"),
            over_time(grown(semconv.JUDGE_CACHE_HITS), f"cached {q.OF_ACCOUNT}"),
        ),
        lines(
            "Wait of the questions",
            "50 and 95 % of the questions were sent within this time. A question that waits longer than "
            "`judge.queue_timeout` ends"
            " as `judge_unavailable`.",
            *[
                over_time(
                    q.within(share, semconv.JUDGE_QUEUE_DURATION, q.ACCOUNT, where=q.OF_SERVICE),
                    f"{share:.0%} {q.OF_ACCOUNT}",
                )
                for share in (0.5, 0.95)
            ],
            unit=SECONDS,
        ),
        lines(
            "Budgets",
            "*spent*: share of the budget that is spent in its present window. *factor*: the budget multiplies the sampling"
            " rates by it. A factor under 0.5 for hours: the rates need more than twice the budget; raise it, or lower them.",
            over_time(f"{spent} / {limit}", f"spent {_BUDGET}"),
            over_time(q.worst("min", semconv.BUDGET_FACTOR, _EACH_BUDGET), f"factor {_BUDGET}"),
            unit=SHARE,
            width=24,
        ),
    ]
