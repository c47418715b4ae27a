"""What ``check`` says of each part of a configuration: faults, costs, and what a person must know."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from math import ceil
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from spanscore.cli._cost_plan import CostPlan, asked_model
from spanscore.config.collect import Collect
from spanscore.config.credentials import token_in_file
from spanscore.config.durable import RemoteScoring, confluent_config
from spanscore.config.judging import ChatModelSettings
from spanscore.config.kinds import duration
from spanscore.config.monitoring import JudgeCheck
from spanscore.config.sampling import Rule, head_shares
from spanscore.config.tree import Configuration, ScorerSettings
from spanscore.config.units import Replicas, Sessions
from spanscore.core import plugins
from spanscore.core.files import check_disk
from spanscore.core.plugins import Registry
from spanscore.core.printable import format_bytes, format_count, format_usd
from spanscore.errors import ConfigurationError, NotReadyError
from spanscore.metrics.catalog.configured import entries, metrics_of, per_session, shadow_settings, shadows_of
from spanscore.metrics.catalog.registry import create
from spanscore.monitoring.calibration import SavedCalibration, calibrations_of, refuse_unknown
from spanscore.monitoring.health import refused_evaluator_versions
from spanscore.monitoring.judge_check import JudgeCheckPlan, watched_by
from spanscore.monitoring.judge_check_runs import FirstAnswers, least_turned
from spanscore.outputs.aggregates import checked_dimensions
from spanscore.outputs.sinks import SINKS
from spanscore.outputs.spans_file import MAX_BYTES
from spanscore.pipeline.jobs import REDACTORS
from spanscore.pipeline.judge_check import cases_of
from spanscore.pipeline.queues import QUEUES
from spanscore.pipeline.sampling import DEFAULT_KEY, RateSampler
from spanscore.pipeline.sessions import SessionBounds
from spanscore.protocols import Metric
from spanscore.samples.genai import DIALECTS
from spanscore.samples.normalizers.registry import TRANSLATIONS
from spanscore.wiring.metrics import checked_session_metrics
from spanscore.wiring.outputs import check_conditions, exports_content
from spanscore.wiring.remote_scoring import left_to_the_other

__all__ = [
    "ModelStandIn",
    "calibration_notes",
    "calibration_problems",
    "collect_lines",
    "collect_problems",
    "evaluator_version_problems",
    "file_problems",
    "judge_check_lines",
    "judge_check_problems",
    "part_problems",
    "present_evaluator_versions",
    "remote_scoring_lines",
    "remote_scoring_problems",
    "rule_lines",
    "sampling_notes",
    "session_lines",
    "session_metrics_in",
    "session_problems",
    "spans_file_lines",
    "spool_lines",
    "spool_problems",
]

# --- evaluator versions ---------------------------------------------------------------------------------------------

# A configuration → the evaluator version of its metrics, and which alerts watch one that no metric can have. No judge is
# asked for it.


@dataclass(frozen=True, slots=True)
class ModelStandIn:
    """Stands for a chat model that is not made: of a metric with it, all but what it would answer can be looked at."""

    model: str = "any"

    async def ask(self, prompt: Any) -> Any:
        """Answer nothing."""
        raise NotImplementedError


def evaluator_version_problems(settings: Configuration) -> Iterator[ConfigurationError]:
    """Yield each alert whose evaluator version its metric cannot have.

    Where the judge cannot be made here, its model's name says what it would be called; of a metric that compares by embeddings
    nothing can be said then.
    """
    if all(alert.evaluator_version is None for alert in settings.alerts.values()):
        return
    try:
        metrics, shadows = metrics_of(settings), shadows_of(settings)
    except ConfigurationError:  # why is told where they are looked at
        metrics, shadows = _stand_ins(settings)
    yield from map(ConfigurationError, refused_evaluator_versions(settings.alerts, metrics, shadows))


def present_evaluator_versions(settings: Configuration) -> dict[str, str]:
    """Return metric → the evaluator version of its scores; empty where its judge cannot be made here."""
    try:
        return {metric.name: metric.evaluator_version for metric in metrics_of(settings)}
    except ConfigurationError:
        return {}


def _stand_ins(settings: Configuration) -> tuple[list[Metric], list[Metric]]:
    try:
        own = [_make_metric(name, parameters, settings.judge, settings) for name, parameters in entries(settings)]
        beside = [
            _make_metric(name, parameters, judge, settings) for name, parameters, judge in shadow_settings(settings)
        ]
    except ConfigurationError:
        return [], []
    return [metric for metric in own if not hasattr(metric, "embeddings")], beside


def _make_metric(name: str, parameters: Mapping[str, Any], judge: ChatModelSettings, settings: Configuration) -> Metric:
    if judge.model == "lexical":
        return create(name, judge="lexical", **parameters)
    alert = settings.alerts.get(str(parameters.get("name", name)))
    _, _, rest = ((alert and alert.evaluator_version) or "").partition("/")
    pinned, model = rest.rpartition("/")[0], asked_model(judge)
    # Some integrations put a path before it: models/gemini-2.5-pro.
    return create(
        name, judge=ModelStandIn(pinned if pinned.endswith(f"/{model}") else model), embeddings="lexical", **parameters
    )


# --- calibration plan -----------------------------------------------------------------------------------------------

# A configuration's calibrations → what ``check`` says of them: whose pass rate they correct, and how far alerts see.


def calibration_problems(settings: Configuration, metrics: Sequence[Metric]) -> Iterator[ConfigurationError]:
    """Yield what is wrong with the files; ``metrics``: those that can be made."""
    try:
        calibrations = calibrations_of(settings.monitoring.calibrations)
        if len(metrics) == len(settings.metrics):  # else what a file is of may be what cannot be made
            refuse_unknown(calibrations, metrics)
    except ConfigurationError as error:
        yield error


def calibration_notes(settings: Configuration) -> Iterator[str]:
    """Yield what each calibration of a configuration without a fault means."""
    paths = settings.monitoring.calibrations
    present = present_evaluator_versions(settings) if paths else {}
    for metric, saved in calibrations_of(paths).items():
        yield f"{metric}: {_note(saved, present.get(metric), settings)}"


def _note(saved: SavedCalibration, evaluator_version: str | None, settings: Configuration) -> str:
    if evaluator_version is not None and evaluator_version != saved.evaluator_version:
        return (
            f"not calibrated: the labels are of evaluator version {saved.evaluator_version}, and its scores are of "
            f"{evaluator_version}; its pass rate is not "
            "corrected until `spanscore calibrate` has seen verdicts of that"
        )
    of = saved.calibration
    correction = f"its pass rate is corrected by {of.labels:,} labels (J {of.informedness.value:.2f})"
    alert = settings.alerts.get(saved.metric)
    if alert is None:
        return correction
    j, drop = of.informedness.value, alert.min_drop
    return (
        f"{correction}; alerts are not: a true drop shows as {j:.2f} × the drop. min_drop {drop:g}, as the judge sees it, is "
        f"a true drop of {drop / j:.2g}; to see one of {drop:g} write min_drop: {j * drop:.2g}"
    )


# --- collect plan ---------------------------------------------------------------------------------------------------

# What a scorer collects → what keeps it from the file, and whose content stands there in which form.


def collect_problems(settings: Configuration, metrics: Sequence[Metric]) -> Iterator[ConfigurationError]:
    """Yield what keeps cases from being collected; a folder that is not here may be where the scorer will run."""
    collect = settings.collect
    if collect is None:
        return
    try:
        check_conditions(collect, {metric.name: metric for metric in metrics})
    except ConfigurationError as error:
        yield error
    yield from file_problems("collect.out", collect.path)


def file_problems(key: str, path: Path) -> Iterator[ConfigurationError]:
    """Yield what keeps a scorer from writing the file that a key names."""
    if not path.parent.is_dir():
        yield NotReadyError(f"there is no folder {path.parent}; {key} needs it")
    elif path.exists() and not path.is_file():
        yield ConfigurationError(f"{key}: {path} is there, and is no file")
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        yield NotReadyError(f"{path} cannot be written by this user; {key} needs it")


def collect_lines(settings: ScorerSettings) -> Iterator[str]:
    """Yield what a scorer without a problem collects: that content goes to a file is to be known before it does."""
    collect = settings.collect
    if collect is None:
        return
    if settings.remote_scoring is not None or (settings.spool is not None and not settings.spool.score_here):
        yield "collect: cases are written where units are scored, and not by this process"
        return
    yield f"collect: content is written to {collect.path}, of units of which {' or '.join(collect.when)} holds"
    redacted = "as the redactor leaves it" if settings.redactor is not None else "as it is, as there is no redactor"
    yield f"  {redacted}; readable by its owner alone; with the file before (.1) up to {format_bytes(collect.max_bytes)}"
    yield from _mode_notes(collect)


def spans_file_lines(settings: ScorerSettings) -> Iterator[str]:
    """Yield which spans ``spans_to`` writes, and whether content is in them."""
    if settings.outputs.spans_to is not None:
        content = "with prompts and answers" if exports_content(settings.capture.content) else "without content"
        path = Path(settings.outputs.spans_to).resolve()
        yield f"spans_to: spans are written to {path}, {content}; with the file before (.1) up to {format_bytes(MAX_BYTES)}"


def _mode_notes(collect: Collect) -> Iterator[str]:
    mode = stat.S_IMODE(collect.path.stat().st_mode) if collect.path.exists() else 0
    if mode & 0o077:
        yield f"  others can read {collect.path} now (mode {mode:04o}): the first case makes it its owner's alone (0600)"


# --- judge check plan -----------------------------------------------------------------------------------------------

# A judge check → what is wrong with it, what it costs a day, and how large a change of a judge it shows.

_DAY_S = 86_400.0
_SMALL = 0.05
"""Share of the answers that turn, for which it is told how many samples show it."""


def judge_check_problems(judge_check: JudgeCheck | None, metrics: Sequence[Metric]) -> Iterator[ConfigurationError]:
    """Yield what keeps a judge check from being asked; a file that is not here may be where the scorer will run."""
    if judge_check is None:
        return
    try:
        watched = watched_by(judge_check, {metric.name: metric for metric in metrics})
        if judge_check.path.exists():
            cases_of(judge_check, watched)
        else:
            yield NotReadyError(f"there is no file {judge_check.path}; judge_check.golden_set needs it")
        FirstAnswers(judge_check.baseline_path)
    except ConfigurationError as error:
        yield error


def judge_check_lines(
    judge_check: JudgeCheck | None,
    plans: Sequence[JudgeCheckPlan],
    metrics: Sequence[Metric],
    costs: Sequence[CostPlan],
) -> Iterator[str]:
    """Yield what a judge check without a problem does; ``costs``: of a score of each metric of which they are known."""
    if judge_check is None or not judge_check.path.exists():
        return
    by_name = {metric.name: metric for metric in metrics}
    samples = len(cases_of(judge_check, {plan.metric: by_name[plan.metric] for plan in plans}))
    runs = _DAY_S / judge_check.every
    names = ", ".join(plan.metric for plan in plans)
    every = duration(judge_check.every)
    of_file = f"{format_count(samples, 'labelled sample')} of {judge_check.path}"
    yield f"judge check: {of_file}, every {every}, for the judge of {names}"
    yield f"  a day costs {_cost(plans, costs, samples * runs)}, for each replica: only processes of one machine share runs"
    yield f"  the first answers are kept in {judge_check.baseline_path}, which must outlive the process"
    yield from (f"  {plan.metric}: {_power(plan, samples)}" for plan in plans)


def _cost(plans: Sequence[JudgeCheckPlan], costs: Sequence[CostPlan], scores: float) -> str:
    """Return questions and money of so many scores of each metric."""
    cost_of = {cost.metric: cost for cost in costs}
    watched = [cost_of.get(plan.metric) for plan in plans]
    calls = sum(cost.calls for cost in watched if cost is not None)
    more = "more than " if None in watched else ""
    prices = [None if cost is None else cost.usd for cost in watched]
    usd = "no price is known" if None in prices else f"{format_usd(scores * sum(price or 0.0 for price in prices))} USD"
    return f"{more}{scores * calls:,.0f} questions, {usd}"


def _power(plan: JudgeCheckPlan, samples: int) -> str:
    turned = least_turned(plan.below)
    if turned > samples:
        few = format_count(samples, "labelled sample")
        return f"no change can be seen with {few}: {turned} answers must turn (p below {plan.below:.2g})"
    sentence = (
        f"a change is seen where {turned} of {samples:,} answers turn, all one way ({turned / samples:.2g} of them)"
    )
    return f"{sentence}; to see {_SMALL:g} of them turn, label {ceil(turned / _SMALL):,}"


# --- session plan ---------------------------------------------------------------------------------------------------

# Metrics that score sessions → what is wrong with them, and what a person must know of them.

_PRESUMES: Final[dict[Replicas, str]] = {
    "one": "every turn of a conversation reaches this one process; of several, each would end a part of it as the whole: set "
    "sticky where all turns of one reach the same, else any",
    "sticky": "all turns of a conversation reach the same process; one that moves is scored in parts",
    "any": "any process may have any turn: only scorer.end_session() and max_turns end a conversation, on a turn that brought "
    "the whole history along; else it is incomplete",
}


def session_problems(settings: Configuration, made: Sequence[Metric]) -> Iterator[ConfigurationError]:
    """Yield why a configuration's metrics cannot score sessions; all of them could be made."""
    try:
        sessions = checked_session_metrics(session_metrics_in(settings, made), (), ())
    except ConfigurationError as error:
        yield error
        return
    for rule in settings.sampling.rules:
        if rule.when.score is not None and rule.when.score.metric in sessions:
            yield ConfigurationError(
                f"sampling.rules: one looks at the score of {rule.when.score.metric}, which scores sessions; rules are of units"
            )


def session_metrics_in(settings: Configuration, metrics: Sequence[Metric]) -> list[Metric]:
    """Return those that score sessions of a configuration's metrics, which are in its order.

    Raises:
        ConfigurationError: what one scores is neither.
    """
    return [metric for metric, is_one in zip(metrics, per_session(settings), strict=True) if is_one]


def session_lines(metrics: Sequence[Metric], settings: ScorerSettings) -> Iterator[str]:
    """Yield when conversations end, and what that presumes; nothing where no metric scores them."""
    if not metrics:
        return
    names = ", ".join(metric.name for metric in metrics)
    yield (
        f"{names}: one score per conversation, when it has ended; rates and alerts are of conversations, not of requests, and "
        "what a day costs hangs on how many there are: it is in no sum here"
    )
    yield f"a conversation ends {_ends(settings.sessions)}"
    yield f"sessions.replicas: {settings.sessions.replicas} presumes that {_PRESUMES[settings.sessions.replicas]}"
    if settings.sampling.rules:
        yield f"sampling rules are of units: none raises the rate of {names}"


def _ends(sessions: Sessions) -> str:
    if sessions.replicas == "any":
        return f"by scorer.end_session() or with its turn {sessions.max_turns:,}"
    idle = duration(sessions.idle_timeout)
    ends = f"by scorer.end_session(), after {idle} without a turn, with its turn {sessions.max_turns:,}"
    return f"{ends}, or when {SessionBounds().max_open:,} others are open"


# --- remote scoring plan --------------------------------------------------------------------------------------------

# ``remote_scoring`` → what is wrong with it, and what goes where. Nobody is contacted.


def remote_scoring_problems(settings: Configuration, made: Sequence[Metric]) -> Iterator[ConfigurationError]:
    """Yield what keeps units from being handed over; a file that is not here may be where the application will run.

    Args:
        made: the metrics of the configuration, in its order; of those where one could not be made, nothing is said here.
    """
    where = settings.remote_scoring
    if where is None:
        return
    sessions = settings.sessions.model_copy(update={"metrics": tuple(_of_sessions(settings, made))})
    whole = settings.model_copy(update={"sessions": sessions})
    checks: list[Callable[[], object]] = [partial(left_to_the_other, whole), partial(_secrets, where)]
    for check in checks:
        try:
            check()
        except ConfigurationError as error:
            yield error


def remote_scoring_lines(where: RemoteScoring | None) -> Iterator[str]:
    """Yield what a process does that hands its units over."""
    if where is None:
        return
    yield f"units go to {where.shown} to be scored, with their content, after the redactor"
    if where.endpoint is not None and not _is_private(where.endpoint):
        yield "remote_scoring.endpoint is no https: content and token travel as plain text"


def _of_sessions(settings: Configuration, made: Sequence[Metric]) -> Sequence[Metric]:
    try:
        return session_metrics_in(settings, made)
    except (ConfigurationError, ValueError):  # told as a problem of theirs; or not all are there: which is which?
        return ()


def _secrets(where: RemoteScoring) -> object:
    if where.kafka is not None:
        return confluent_config(where.kafka, "remote_scoring.kafka")
    return token_in_file(where.token_file or "", "remote_scoring.token_file")


def _is_private(endpoint: str) -> bool:
    """Whether nobody else can read what is sent there: by TLS, or as it stays on the machine."""
    parts = urlsplit(endpoint)
    try:
        return parts.scheme == "https" or parts.hostname == "localhost" or ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


# --- sampling plan --------------------------------------------------------------------------------------------------

# Sampling rules → what they take, in words, and what a person must know of them.


def rule_lines(rules: Sequence[Rule]) -> Iterator[str]:
    """Yield a sentence for each rule."""
    for rule in rules:
        conditions = " and ".join(_conditions(rule))
        yield f"at least {rule.rate:g} {f'when {conditions}' if conditions else 'always'}"


def sampling_notes(settings: ScorerSettings) -> Iterator[str]:
    """Yield what does not follow from a rule's words, and the shares that units without ``ot=th`` get."""
    yield from _upstream_notes(settings)
    for rule in settings.sampling.rules:
        if rule.when.status == "error" and not settings.capture.score_failed:
            yield (
                f"the sampling rule {rule.name} takes runs whose status is error: they failed, and failed runs have no sample. "
                "any_error: true also takes those that answered although something inside failed; capture.score_failed: true "
                "scores what the model of a failed run had answered"
            )
        if settings.capture.enabled and (
            lost := [key for key in rule.when.metadata or {} if key not in settings.capture.metadata]
        ):
            keys = ", ".join(lost)
            yield (
                f"the sampling rule {rule.name} looks at metadata that the callback's spans do not have: replay and workers "
                f"read these, and will decide otherwise; capture.metadata: [{keys}] exports it"
            )
        if rule.when.score is not None:
            yield f"every unit waits for its score of {rule.when.score.metric}: the sampling rule {rule.name} looks at it"


def _upstream_notes(settings: ScorerSettings) -> Iterator[str]:
    by_service, default = head_shares(settings.sampling.head_sampling_rate)
    if not by_service and default == 1:
        return
    services = [f"{1 / share:.4g} if its service is {name}" for name, share in by_service.items()]
    rest = f"{1 / default:.4g}{' if it is any other' if services else ''}"
    yield (
        f"sampling.head_sampling_rate: a unit without ot=th has the weight {', '.join([*services, rest])}; "
        "a unit with it, the weight that ot=th states; both are divided by the sampling rate"
    )


def _conditions(rule: Rule) -> Iterator[str]:
    if rule.when.status is not None:
        yield f"status is {rule.when.status}"
    if rule.when.workflow is not None:
        yield f"the workflow is {rule.when.workflow!r}"
    if rule.when.slower_than is not None:
        yield f"it took more than {rule.when.slower_than:g} s"
    yield from (f"metadata {key} is {value!r}" for key, value in (rule.when.metadata or {}).items())
    if rule.when.any_error:
        yield "something in it failed, handled or not"
    if rule.when.min_tool_calls is not None:
        yield f"it called tools {rule.when.min_tool_calls} times or more"
    if rule.when.model is not None:
        yield f"it asked the model {rule.when.model!r}"
    if rule.when.score is not None:
        yield f"the quality of {rule.when.score.metric} is below {rule.when.score.below:g}"


# --- spool plan -----------------------------------------------------------------------------------------------------

# A spool → what keeps it from being written, and what is done with it.


def spool_problems(settings: Configuration) -> Iterator[ConfigurationError]:
    """Yield what keeps a spool from being written; a folder that is not here may be where the scorer will run."""
    spool = settings.spool
    if spool is None:
        return
    if settings.limits.job_queue != "memory":
        yield ConfigurationError(
            "spool and limits.job_queue are both given: units wait in one place; leave out one of them"
        )
    if not spool.score_here and settings.sampling.feedback is not None:
        yield ConfigurationError(
            "sampling.feedback cannot stand beside spool.score_here: false: nothing is judged there"
        )
    path = Path(spool.path).expanduser().absolute()
    if not path.parent.is_dir():
        yield NotReadyError(f"there is no folder {path.parent}; spool.path needs it")
    elif not spool.allow_network_disk:
        try:
            check_disk(path)
        except ConfigurationError as error:
            yield error


def spool_lines(settings: ScorerSettings) -> Iterator[str]:
    """Yield what a spool without a problem does."""
    spool = settings.spool
    if spool is None:
        return
    who = "scored in this process, or in any that shares it" if spool.score_here else "scored by spanscore worker"
    yield f"spool: {spool.path}, up to {format_bytes(spool.max_bytes)} and {duration(spool.max_age)}; {who}"
    survives = "the loss of power" if spool.sync == "full" else "kill -9, not the loss of power"
    yield f"  it holds prompts and answers, as the redactor leaves them; what is in it survives {survives}"


# --- parts ----------------------------------------------------------------------------------------------------------

# A configuration → what the parts of its scorer would refuse.


def part_problems(settings: Configuration) -> Iterator[ConfigurationError]:
    """Yield what a scorer's parts would refuse: they are tried here."""
    rules, key = settings.sampling.rules, settings.sampling.key
    tried: list[tuple[str, Callable[[], object]]] = [
        ("", lambda: RateSampler({}, rules=rules, key=DEFAULT_KEY if key is None else key)),
        ("monitoring.dimensions: ", lambda: checked_dimensions(settings.monitoring.dimensions)),
    ]
    queue, redactor = settings.limits.job_queue, settings.redactor
    named: Mapping[str, tuple[Registry, Sequence[Any]]] = {
        "outputs.sinks": (SINKS, settings.outputs.sinks),
        "units.dialects": (DIALECTS, settings.units.dialects),
        "limits.job_queue": (QUEUES, [queue]),
        "redactor": (REDACTORS, [redactor] if redactor else []),
        "units.translations": (TRANSLATIONS, settings.units.translations),
    }
    for section, (registry, parts) in named.items():
        offered = dict.fromkeys(registry.offers)
        tried += [(f"{section}: ", partial(registry.checked, *part, **offered)) for part in plugins.entries(parts)]
    tried += [("limits.job_queue: ", lambda: QUEUES.check_one(queue))]
    for at, make in tried:
        try:
            make()
        except ConfigurationError as error:
            yield ConfigurationError(f"{at}{error}")
