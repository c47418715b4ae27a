"""The fault matrix: a judge's faults, and the required results of the units. One function per row.

Tests play the rows short, ``benchmarks/judge_faults.py`` at their full length; both hold them against the same targets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from threading import active_count
from threading import enumerate as enumerate_threads
from typing import Any

from tests.judges.faults.reports import FaultReport, Pace, check_billed, check_requests, check_scored, report_of
from tests.judges.faults.stage import Stage, critic
from tests.servers import openai_faults as faults
from tests.servers.faulty_openai import FaultyOpenAI, Limits
from tests.servers.openai_faults import Fault, Play

from spanscore.metrics import BaseMetric, Finding

_GOOD = '{"reason": "fine", "verdict": 1}'


Row = Callable[..., FaultReport]


# --- a provider that is away, for a while ---------------------------------------------------------------------------


def refusals(pace: Pace, retry_after_s: float | None = None) -> FaultReport:
    """429 for 30 s."""
    over_s = 30 * pace.length
    asked_for_s = None if retry_after_s is None else retry_after_s * pace.length
    storm = Fault(faults.status(429, retry_after=asked_for_s), until_s=over_s)
    with FaultyOpenAI(latency_s=0.1, faults=[storm]) as server, Stage(_critic(server, pace)) as stage:
        stage.begin(server)
        stage.submit(round(60 * pace.length * pace.per_s), pace.per_s)
        report = report_of(stage, server)
        check_scored(report, stage)
        check_requests(report, stage, server, 1.10, pace)
        check_billed(report, stage, server)
        report.within(pace, "s to the first score after it", stage.first_scored_s(over_s), 5 + (asked_for_s or 0))
    return report


def connections_refused(pace: Pace) -> FaultReport:
    """No server listens for 60 of 90 s."""
    with FaultyOpenAI(latency_s=0.1) as server, Stage(_critic(server, pace)) as stage:
        stage.begin(server)
        stage.submit(round(15 * pace.length * pace.per_s), pace.per_s)
        server.refuse()
        stage.submit(round(60 * pace.length * pace.per_s), pace.per_s)
        server.accept()
        over_s = stage.now_s()
        stage.submit(round(15 * pace.length * pace.per_s), pace.per_s)
        report = report_of(stage, server)
        check_scored(report, stage)
        connects = sum(call.error_type == "connection" for call in stage.calls())
        report.most("connects in the outage", connects, 25)
        report.within(pace, "s to the first score after it", stage.first_scored_s(over_s), 3 + 0.1)
    return report


def hangs(pace: Pace) -> FaultReport:
    """No answer for 60 s."""
    over_s = 60 * pace.length
    hanging = Fault(faults.hang, until_s=over_s)
    with FaultyOpenAI(latency_s=0.1, faults=[hanging]) as server, Stage(_critic(server, pace)) as stage:
        stage.begin(server)
        stage.submit(round(90 * pace.length * pace.per_s), pace.per_s)
        report = report_of(stage, server)
        check_scored(report, stage, 0.99)
        check_requests(report, stage, server, 1.10, pace)
        report.within(pace, "s to the first score after it", stage.first_scored_s(over_s), 5)
        report.most("threads", stage.most_threads, 64 + 16)
    return report


# --- limits ---------------------------------------------------------------------------------------------------------


def limited(pace: Pace, *, limits: Limits, per_score: float) -> FaultReport:
    """300 units at once."""
    with FaultyOpenAI(latency_s=0.3, limits=limits) as server, Stage(_critic(server, pace)) as stage:
        stage.begin(server)
        stage.submit(round(300 * max(0.2, pace.units)))  # of fewer, most are wasted while the level is found
        report = report_of(stage, server)
        check_scored(report, stage)
        check_requests(report, stage, server, per_score, pace)
        check_billed(report, stage, server)
    return report


# --- a share, or one of several -------------------------------------------------------------------------------------


def one_of_two_hangs(pace: Pace) -> FaultReport:
    """A never answers, B is well."""
    with (
        FaultyOpenAI(faults=[Fault(faults.hang)]) as a,
        FaultyOpenAI(latency_s=0.2) as b,
        Stage(_critic(a, pace, "a"), _critic(b, pace, "b")) as stage,
    ):
        stage.begin(a, b)
        units = round(150 * pace.units)
        stage.submit(units, pace.per_s)
        _wait(lambda: len(stage.arrived("b")) == units, 30 * pace.length + 5)
        came = [one.after_s for one in stage.arrived("b")]
        minutes = stage.now_s() / 60
        report = FaultReport(f"B: {len(came)} of {units}", len(b.asked) / units, {})
        report.same("scores of B", len(came), units)
        report.same("requests to B", len(b.asked), units)
        report.within(pace, "B's median, s", median(came or [float("inf")]), 1.0)
        # The breaker opens at the tenth failure of an attempt, then one probe an attempt's time and 5 s.
        report.most("requests to A", len(a.asked), max(20 * minutes, 20 + pace.spare))
        report.most("threads", stage.most_threads, 64 + 64 + 16)
        report.same("collections that do not add up", stage.broken, [])
    return report


def a_share(pace: Pace, *, play: Play, share: float, scored: float, per_score: float) -> FaultReport:
    """A share of the requests fails, 300 units."""
    with (
        FaultyOpenAI(latency_s=0.1, faults=[Fault(play, share)], seed=1) as server,
        Stage(_critic(server, pace)) as stage,
    ):
        stage.begin(server)
        stage.submit(round(300 * pace.units), pace.per_s)
        report = report_of(stage, server)
        check_scored(report, stage, scored)
        check_requests(report, stage, server, per_score, pace)
        report.same("calls for requests", len(stage.calls()), len(server.asked))
    return report


def beside_a_metric_that_computes(pace: Pace) -> FaultReport:
    """A metric that computes, a judge that hangs: 50 units/s for 40 s."""
    with (
        FaultyOpenAI(faults=[Fault(faults.hang)]) as server,
        Stage(Computed(), _critic(server, pace, queue_timeout=4 * pace.timeout_s)) as stage,
    ):
        stage.begin(server)
        units = round(2_000 * pace.units)
        stage.submit(units, 50)
        _wait(lambda: len(stage.arrived("computed")) == units, 10)
        computed = stage.scorer.status().outcomes["computed"]
        report = FaultReport(f"{computed} of {units}", 0.0, stage.rest())
        report.same("scores of the computing metric", dict(computed), {"scored": units})
        report.same("collections that do not add up", stage.broken, [])
    return report


class Computed(BaseMetric):
    """A metric without a judge."""

    name = "computed"
    requires = {"single_turn": ("response",)}  # noqa: RUF012

    async def measure(self, sample: Any) -> Finding:
        return Finding(value=float(bool(sample.response)))


# --- unusable answers -----------------------------------------------------------------------------------------------


def ends_as(
    pace: Pace,
    *,
    play: Play,
    outcome: str,
    requests: int,
    units: int = 1,
    scored: int = 0,
    later: bool = False,
    calls: int | None = None,
    **effects: Any,
) -> FaultReport:
    """Every answer is this one.

    Args:
        outcome: outcome of unscored units, with the error type.
        requests: at most, in all.
        calls: that are recorded; None = one for each request.
        later: whether one more unit, of a server that is well again, must be scored with the schema as before.
    """
    with FaultyOpenAI(faults=[Fault(play)]) as server, Stage(_critic(server, pace, **effects)) as stage:
        stage.begin(server)
        for _ in range(units):
            stage.submit(1)
            stage.ended(30)
        report = report_of(stage, server)
        report.same("scored", stage.scored(), scored)
        report.same("rest", stage.rest(), {outcome: units - scored} if units > scored else {})
        report.most("requests", len(server.asked), requests)
        report.same("calls for requests", len(stage.calls()), len(server.asked) if calls is None else calls)
        report.same("calls of fewer than no tokens", sum(call.input_tokens < 0 for call in stage.calls()), 0)
        report.most("USD", sum(call.cost_usd or 0.0 for call in stage.calls()), 0.001)
        if later:
            server.faults = []
            stage.submit(1)
            stage.ended(30)
            report.same("scored when it is well again", stage.scored(), scored + 1)
            report.same("mode", "response_format" in server.requests[-1], "response_format" in server.requests[0])
    return report


def drips(pace: Pace) -> FaultReport:
    """A byte per tenth of the timeout."""
    play = faults.drip(pace.timeout_s / 10)
    with FaultyOpenAI(faults=[Fault(play)]) as server, Stage(_critic(server, pace)) as stage:
        stage.begin(server)
        stage.submit(1)
        report = report_of(stage, server)
        report.same("rest", stage.rest(), {"timeout timeout": 1})
        report.most("requests", len(server.asked), 4)
        _wait(lambda: not server.inflight, 2 * pace.timeout_s if pace.clocked else 30)
        report.same("requests that go on", server.inflight, 0)
        took = [(one.ended_s or float("inf")) - one.at_s for one in server.asked]
        report.within(pace, "s until a request has ended", max(took), 2 * pace.timeout_s)
    return report


def too_big(pace: Pace, *, play: Play) -> FaultReport:
    """An answer that would fill the host."""
    with FaultyOpenAI() as server, Stage(_critic(server, pace)) as stage:
        stage.submit(1)
        stage.ended()  # imports and connections of the first question are not part of the fault
        before = active_count()
        server.faults = [Fault(play)]
        resident, cpu_s = _resident_mb(), _cpu_s()
        stage.submit(1)
        stage.ended()
        report = FaultReport(f"{stage.scored() - 1} of 1", len(server.asked) - 1, stage.rest())
        report.within(pace, "CPU, s", _cpu_s() - cpu_s, 0.05)
        report.within(pace, "resident, MB more", _resident_mb() - resident, 16)
        report.same("scored", stage.scored(), 1)
        report.most("requests", len(server.asked) - 1, 2)
        _wait(lambda: not server.inflight, 5)
        report.most("threads more", active_count() - before, 1)
        report.same("requests that go on", server.inflight, 0)
    return report


def equal_questions(pace: Pace) -> FaultReport:
    """A thousand equal questions at once, with a cache."""
    with FaultyOpenAI(latency_s=0.2) as server, Stage(critic(server, cache="memory")) as stage:
        units = round(1_000 * pace.units)
        stage.submit(units, same=True)
        report = report_of(stage, server)
        check_scored(report, stage)
        report.same("requests", len(server.asked), 1)
        report.same("cached calls", sum(call.cached for call in stage.calls()), units - 1)
        report.same("tokens of cached calls", sum(call.input_tokens for call in stage.calls() if call.cached), 0)
    return report


def _critic(server: FaultyOpenAI, pace: Pace, name: str = "harmless", **effects: Any) -> Any:
    return critic(server, name, timeout=pace.timeout_s, **effects)


def _wait(holds: Callable[[], bool], most_s: float) -> None:
    until_s = time.monotonic() + most_s
    while not holds() and time.monotonic() < until_s:
        time.sleep(0.02)


def _cpu_s() -> float:
    """Return the CPU time of our threads, those of judges included; the server's is not ours."""
    ours = (thread.ident for thread in enumerate_threads() if thread.name.startswith("spanscore") and thread.ident)
    return sum(time.clock_gettime(time.pthread_getcpuclockid(ident)) for ident in ours)


def _resident_mb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


_LIMITS = {
    "10 requests a second": (Limits(requests_per_s=10), 1.16),
    "10 requests a second, Retry-After 1": (Limits(requests_per_s=10, retry_after_s=1), 1.26),
    "4 at once": (Limits(places=4), 1.06),
}
_NO_ANSWERS: Mapping[str, tuple[Play, str, int]] = {
    "the filter refuses the question": (faults.filtered_question, "judge_error declined", 1),
    "the filter refuses the answer": (faults.says("", finish="content_filter"), "judge_error declined", 1),
    "the model refuses": (faults.says(None, refusal="I will not."), "judge_error declined", 1),
    "the question is too long": (faults.too_long, "judge_error too_long", 1),
    "cut by length": (faults.says('{"reason": "fi', finish="length"), "judge_error cut", 2),
    "prose": (faults.says("It is fine."), "judge_error unparseable", 2),
    "of a wrong type": (faults.says('{"reason": "r", "verdict": "yes"}'), "judge_error unparseable", 2),
    "empty": (faults.says(""), "judge_error empty", 2),
    "no choices": (faults.no_choices, "judge_error empty", 2),
    "HTML with 200": (faults.body("<html>Welcome</html>"), "judge_error unparseable", 2),
}
_LASTING = {
    "401": (faults.not_allowed, "judge_error not_allowed"),
    "403": (faults.forbidden, "judge_error not_allowed"),
    "404": (faults.no_such_model, "judge_error no_such_model"),
}
_ODD_USAGE: Mapping[str, Mapping[str, Any]] = {
    "below 0": {"prompt_tokens": -5},
    "1e30": {"completion_tokens": 1e30},
    "a word": {"completion_tokens": "many"},
}

ROWS: Mapping[str, Row] = {
    "429": refusals,
    **{f"429, Retry-After {after}": partial(refusals, retry_after_s=after) for after in (5, 20, 90)},
    **{what: partial(limited, limits=limits, per_score=most) for what, (limits, most) in _LIMITS.items()},
    "connections refused": connections_refused,
    "hangs": hangs,
    "A hangs for good, B is well": one_of_two_hangs,
    "a fifth hangs": partial(a_share, play=faults.hang, share=0.2, scored=0.98, per_score=1.35),
    "three tenths are 500": partial(a_share, play=faults.status(500), share=0.3, scored=0.99, per_score=1.50),
    "drips": drips,
    **{what: partial(ends_as, play=play, outcome=rest, requests=1, units=3) for what, (play, rest) in _LASTING.items()},
    "quota gone": partial(
        ends_as, play=faults.out_of_quota, outcome="judge_unavailable quota", requests=1, queue_timeout=0.5
    ),
    **{
        what: partial(ends_as, play=play, outcome=rest, requests=most, later=True)
        for what, (play, rest, most) in _NO_ANSWERS.items()
    },
    "in a fence": partial(ends_as, play=faults.says(f"```json\n{_GOOD}\n```"), outcome="", requests=1, scored=1),
    **{
        f"usage {what}": partial(ends_as, play=faults.with_usage(**usage), outcome="", requests=1, scored=1)
        for what, usage in _ODD_USAGE.items()
    },
    "connection cut": partial(ends_as, play=faults.cut_connection, outcome="judge_error connection", requests=4),
    "redirects in a circle": partial(
        ends_as, play=faults.redirect_loop, outcome="judge_error http_307", requests=4, calls=1
    ),
    "10 MB of prose": partial(too_big, play=faults.big()),
    "a gzip bomb": partial(too_big, play=faults.gzip_bomb()),
    "a body without end": partial(too_big, play=faults.endless),
    "a computing metric beside a judge that hangs": beside_a_metric_that_computes,
    "equal questions at once": equal_questions,
}
"""Every row by its name."""
