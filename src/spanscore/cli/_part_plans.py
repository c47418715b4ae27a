"""The plan of each topic of a configuration, such as its spool: its problems, and its lines in ``spanscore check``."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from math import ceil
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from spanscore.cli._cost_plan import CostPlan, asked_model
from spanscore.config.credentials import token_in_file
from spanscore.config.durable import confluent_config
from spanscore.config.judging import ChatModelSettings, JurySettings
from spanscore.config.sampling import Rule, head_shares
from spanscore.config.tree import Configuration, ScorerSettings
from spanscore.config.units import Replicas
from spanscore.core import plugins
from spanscore.core.files import check_disk
from spanscore.core.plugins import Registry
from spanscore.core.printable import format_bytes, format_count, format_duration, format_usd
from spanscore.errors import ConfigurationError, NotReadyError
from spanscore.judges.jury import Jury
from spanscore.metrics.catalog.configured import metrics_of, of_juries, per_session, shadow_settings, shadows_of
from spanscore.metrics.catalog.registry import create
from spanscore.monitoring.calibration import SavedCalibration, calibrations_of, refuse_unknown
from spanscore.monitoring.health import refused_evaluator_versions
from spanscore.monitoring.judge_check import JudgeCheckPlan, judge_check_plans, watched_by
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

Topic = Iterator[ConfigurationError | str]
"""Problems and lines of a topic. Show the lines only if every problem is a ``NotReadyError``."""

_DAY_S: Final = 86_400.0
_SMALL: Final = 0.05
"""Share of the answers that change; ``check`` shows how many labelled samples reveal such a change."""
_PRESUMES: Final[dict[Replicas, str]] = {
    "one": "every turn of a conversation reaches this one process; of several processes, each would end its part as a "
    "conversation: set sticky if all turns of a conversation reach the same process, otherwise any",
    "sticky": "all turns of a conversation reach the same process; if one moves, it is scored in parts",
    "any": "any process may have any turn: only scorer.end_session() and max_turns end a conversation, and the last turn must "
    "contain the whole history; otherwise it is incomplete",
}


def refusal_of(check: Callable[[], object], place: str = "") -> Iterator[ConfigurationError]:
    """Yield the error with which ``check`` refuses a configuration, if it does; ``place``: prefix of the message."""
    try:
        check()
    except ConfigurationError as error:
        yield ConfigurationError(f"{place}{error}") if place else error


# --- sessions and remote scoring ------------------------------------------------------------------------------------


def session_metrics_in(settings: Configuration, metrics: Sequence[Metric]) -> list[Metric]:
    """Return the metrics that score sessions; ``metrics``: all metrics of the configuration, in its order.

    Raises:
        ConfigurationError: ``per`` of a metric is neither unit nor session.
    """
    return [metric for metric, is_one in zip(metrics, per_session(settings), strict=True) if is_one]


def _sessions(settings: Configuration, metrics: Sequence[Metric]) -> Topic:
    try:
        of_sessions = session_metrics_in(settings, metrics)
        checked_session_metrics(of_sessions, (), ())
    except ConfigurationError as error:
        yield error
        return
    if not of_sessions:
        return
    names, sessions = [metric.name for metric in of_sessions], settings.sessions
    for rule in settings.sampling.rules:
        if rule.when.score is not None and rule.when.score.metric in names:
            yield ConfigurationError(
                f"sampling.rules: one looks at the score of {rule.when.score.metric}, which scores sessions; rules are of units"
            )
    yield (
        f"{', '.join(names)}: one score per conversation, after its end; rates and alerts count conversations, not requests. "
        "The cost depends on the number of conversations, so it is in no sum here"
    )
    if sessions.replicas == "any":
        yield f"a conversation ends by scorer.end_session() or with its turn {sessions.max_turns:,}"
    else:
        yield (
            f"a conversation ends by scorer.end_session(), after {format_duration(sessions.idle_timeout)} without a turn, with "
            f"its turn {sessions.max_turns:,}, or when {SessionBounds().max_open:,} others are open"
        )
    yield f"sessions.replicas: {sessions.replicas} presumes that {_PRESUMES[sessions.replicas]}"
    if settings.sampling.rules:
        yield f"sampling rules are of units: none raises the rate of {', '.join(names)}"


def _remote_scoring(settings: Configuration, metrics: Sequence[Metric]) -> Topic:
    remote = settings.remote_scoring
    if remote is None:
        return
    try:
        of_sessions = session_metrics_in(settings, metrics)
    except (ConfigurationError, ValueError):  # _sessions reports it; or a metric cannot be made
        of_sessions = []
    sessions = settings.sessions.model_copy(update={"metrics": tuple(of_sessions)})
    yield from refusal_of(partial(left_to_the_other, settings.model_copy(update={"sessions": sessions})))
    if remote.kafka is not None:
        yield from refusal_of(partial(confluent_config, remote.kafka, "remote_scoring.kafka"))
    else:
        yield from refusal_of(partial(token_in_file, remote.token_file or "", "remote_scoring.token_file"))
    yield f"units are sent to {remote.shown} for scoring, with their content, after the redactor"
    if remote.endpoint is not None and not _is_private(remote.endpoint):
        yield "remote_scoring.endpoint is not https: content and token travel as plain text"


def _is_private(endpoint: str) -> bool:
    """Return whether others cannot read content that is sent to the endpoint: TLS, or the endpoint is on this machine."""
    parts = urlsplit(endpoint)
    try:
        return parts.scheme == "https" or parts.hostname == "localhost" or ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False


# --- files ----------------------------------------------------------------------------------------------------------


def _spool(settings: Configuration, _: Sequence[Metric]) -> Topic:
    spool = settings.spool
    if spool is None:
        return
    if settings.limits.job_queue != "memory":
        yield ConfigurationError(
            "spool and limits.job_queue are both given, but units wait in one place only; remove one of them"
        )
    if not spool.score_here and settings.sampling.feedback is not None:
        yield ConfigurationError(
            "sampling.feedback is not possible with spool.score_here: false, because this process judges nothing"
        )
    path = Path(spool.path).expanduser().absolute()
    if not path.parent.is_dir():  # the scorer may run elsewhere
        yield NotReadyError(f"there is no folder {path.parent}; spool.path needs it")
    elif not spool.allow_network_disk:
        yield from refusal_of(partial(check_disk, path))
    who = (
        "scored in this process, or in any process that shares it" if spool.score_here else "scored by spanscore worker"
    )
    yield f"spool: {spool.path}, up to {format_bytes(spool.max_bytes)} and {format_duration(spool.max_age)}; {who}"
    survives = "a power failure" if spool.sync == "full" else "kill -9, not a power failure"
    yield f"  it holds prompts and answers, as the redactor returns them; its content survives {survives}"


def _collect(settings: Configuration, metrics: Sequence[Metric]) -> Topic:
    collect = settings.collect
    if collect is None:
        return
    yield from refusal_of(partial(check_conditions, collect, {metric.name: metric for metric in metrics}))
    yield from _file_problems("collect.out", collect.path)
    if settings.remote_scoring is not None or (settings.spool is not None and not settings.spool.score_here):
        yield "collect: the process that scores the units writes the cases, not this process"
        return
    yield f"collect: content is written to {collect.path}, for units with {' or '.join(collect.when)}"
    redacted = (
        "as the redactor returns it" if settings.redactor is not None else "unchanged, because there is no redactor"
    )
    size = format_bytes(collect.max_bytes)
    yield f"  {redacted}; readable by its owner alone; with the file before (.1) up to {size}"
    mode = stat.S_IMODE(collect.path.stat().st_mode) if collect.path.exists() else 0
    if mode & 0o077:
        yield f"  others can read {collect.path} now (mode {mode:04o}): writing the first case restricts it to its owner (0600)"


def _spans_file(settings: Configuration, _: Sequence[Metric]) -> Topic:
    if settings.outputs.spans_to is None:
        return
    path = Path(settings.outputs.spans_to).resolve()
    yield from _file_problems("outputs.spans_to", path)
    content = "with prompts and answers" if exports_content(settings.capture.content) else "without content"
    yield f"spans_to: spans are written to {path}, {content}; with the file before (.1) up to {format_bytes(MAX_BYTES)}"


def _file_problems(key: str, path: Path) -> Iterator[ConfigurationError]:
    """Yield the reasons for which a scorer cannot write the file that a key names."""
    if not path.parent.is_dir():
        yield NotReadyError(f"there is no folder {path.parent}; {key} needs it")
    elif path.exists() and not path.is_file():
        yield ConfigurationError(f"{key}: {path} exists, and is not a file")
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        yield NotReadyError(f"{path} cannot be written by this user; {key} needs it")


# --- calibrations ---------------------------------------------------------------------------------------------------


def _calibrations(settings: Configuration, metrics: Sequence[Metric]) -> Topic:
    if not settings.monitoring.calibrations:
        return
    try:
        calibrations = calibrations_of(settings.monitoring.calibrations)
    except ConfigurationError as error:
        yield error
        return
    if len(metrics) == len(settings.metrics):  # otherwise a file may belong to a metric that cannot be made
        yield from refusal_of(partial(refuse_unknown, calibrations, metrics))
    present = dict[str, str]()
    with suppress(ConfigurationError):  # the judge cannot be made here: its evaluator version is unknown
        present = {metric.name: metric.evaluator_version for metric in metrics_of(settings)}
    for metric, saved in calibrations.items():
        yield f"{metric}: {_describe_calibration(saved, present.get(metric), settings)}"


def _describe_calibration(saved: SavedCalibration, evaluator_version: str | None, settings: Configuration) -> str:
    if evaluator_version is not None and evaluator_version != saved.evaluator_version:
        return (
            f"not calibrated: the labels are of evaluator version {saved.evaluator_version}, and its scores are of "
            f"{evaluator_version}; its pass rate is not corrected until you run `spanscore calibrate` with verdicts of that"
        )
    j = saved.calibration.informedness.value
    correction = f"its pass rate is corrected by {saved.calibration.labels:,} labels (J {j:.2f})"
    alert = settings.alerts.get(saved.metric)
    if alert is None:
        return correction
    drop = alert.min_drop
    return (
        f"{correction}; alerts are not: a true drop shows as {j:.2f} × the drop. min_drop {drop:g} of the judge's pass rate is "
        f"a true drop of {drop / j:.2g}; to see one of {drop:g} write min_drop: {j * drop:.2g}"
    )


TOPICS: Final[Mapping[str, Callable[[Configuration, Sequence[Metric]], Topic]]] = {
    "sessions": _sessions,
    "remote_scoring": _remote_scoring,
    "spool": _spool,
    "collect": _collect,
    "spans_to": _spans_file,
    "calibrations": _calibrations,
}
"""Topic → its reader: takes a configuration and its metrics that can be made."""


# --- judge check ----------------------------------------------------------------------------------------------------


def judge_check_problems(settings: Configuration, metrics: Sequence[Metric]) -> Iterator[ConfigurationError]:
    """Yield the reasons for which the judge check cannot run. A missing file may exist on the machine of the scorer."""
    judge_check = settings.judge_check
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


def judge_check_topic(settings: Configuration, metrics: Sequence[Metric], costs: Sequence[CostPlan]) -> Iterator[str]:
    """Yield the work and the cost of a valid judge check; ``costs``: known costs of a score of each metric."""
    judge_check = settings.judge_check
    if judge_check is None or not judge_check.path.exists():
        return
    plans = judge_check_plans(judge_check, settings.alerts, metrics, settings.monitoring)
    by_name = {metric.name: metric for metric in metrics}
    samples = len(cases_of(judge_check, {plan.metric: by_name[plan.metric] for plan in plans}))
    names = ", ".join(plan.metric for plan in plans)
    labelled = format_count(samples, "labelled sample")
    yield f"judge check: {labelled} of {judge_check.path}, every {format_duration(judge_check.every)}, for the judge of {names}"
    a_day = _describe_cost(plans, costs, samples * _DAY_S / judge_check.every)
    yield f"  a day costs {a_day}, for each replica: only processes of one machine share runs"
    yield f"  the first answers are kept in {judge_check.baseline_path}, which must outlive the process"
    yield from (f"  {plan.metric}: {_describe_power(plan, samples)}" for plan in plans)


def _describe_cost(plans: Sequence[JudgeCheckPlan], costs: Sequence[CostPlan], scores: float) -> str:
    """Return the judge calls and the cost of this many scores of each metric."""
    cost_of = {cost.metric: cost for cost in costs}
    watched = [cost_of.get(plan.metric) for plan in plans]
    calls = scores * sum(cost.calls for cost in watched if cost is not None)
    prices = [None if cost is None else cost.usd for cost in watched]
    usd = "no price is known" if None in prices else f"{format_usd(scores * sum(price or 0.0 for price in prices))} USD"
    return f"{'more than ' if None in watched else ''}{calls:,.0f} questions, {usd}"


def _describe_power(plan: JudgeCheckPlan, samples: int) -> str:
    turned = least_turned(plan.below)
    if turned > samples:
        few = format_count(samples, "labelled sample")
        return f"no change is detectable with {few}: {turned} answers must change (p below {plan.below:.2g})"
    share = f"{turned / samples:.2g} of them"
    sentence = f"a change is detected if {turned} of {samples:,} answers change, all in one direction ({share})"
    return f"{sentence}; to detect a change of {_SMALL:g} of them, label {ceil(turned / _SMALL):,}"


# --- sampling -------------------------------------------------------------------------------------------------------


def rule_lines(rules: Sequence[Rule]) -> Iterator[str]:
    """Yield a sentence for each rule."""
    for rule in rules:
        conditions = " and ".join(_conditions(rule))
        yield f"at least {rule.rate:g} {f'when {conditions}' if conditions else 'always'}"


def sampling_notes(settings: ScorerSettings) -> Iterator[str]:
    """Yield unobvious consequences of the sampling rules, and the weights of units without ``ot=th``."""
    yield from _describe_weights(settings)
    for rule in settings.sampling.rules:
        if rule.when.status == "error" and not settings.capture.score_failed:
            yield (
                f"the sampling rule {rule.name} takes runs with status error, and failed runs have no sample. any_error: true "
                "also takes runs that answered although a step inside failed; capture.score_failed: true scores the answer "
                "that the model of a failed run had given"
            )
        lost = [key for key in rule.when.metadata or {} if key not in settings.capture.metadata]
        if settings.capture.enabled and lost:
            yield (
                f"the sampling rule {rule.name} uses metadata that the callback's spans do not have: replay and workers "
                f"read these spans, and will decide otherwise; capture.metadata: [{', '.join(lost)}] exports it"
            )
        if rule.when.score is not None:
            yield f"every unit waits for its score of {rule.when.score.metric}: the sampling rule {rule.name} uses it"


def _describe_weights(settings: ScorerSettings) -> Iterator[str]:
    by_service, default = head_shares(settings.sampling.head_sampling_rate)
    if by_service or default != 1:
        weights = [f"{1 / share:.4g} if its service is {name}" for name, share in by_service.items()]
        weights.append(f"{1 / default:.4g}{' if it is any other' if by_service else ''}")
        yield (
            f"sampling.head_sampling_rate: a unit without ot=th has the weight {', '.join(weights)}; "
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


# --- parts ----------------------------------------------------------------------------------------------------------


def part_problems(settings: Configuration) -> Iterator[ConfigurationError]:
    """Yield the reasons for which parts of a scorer refuse a configuration; makes each part to find out."""
    rules, key = settings.sampling.rules, settings.sampling.key
    made: list[tuple[str, Callable[[], object]]] = [
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
        made += [(f"{section}: ", partial(registry.checked, *part, **offered)) for part in plugins.entries(parts)]
    made.append(("limits.job_queue: ", lambda: QUEUES.check_one(queue)))
    for place, make in made:
        yield from refusal_of(make, place)


# --- evaluator versions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelStandIn:
    """A chat model without answers, for metrics whose answers are not needed."""

    model: str = "any"

    async def ask(self, prompt: Any) -> Any:
        """Raise, because no answer is needed.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError


def evaluator_version_problems(settings: Configuration) -> Iterator[ConfigurationError]:
    """Yield an error for each alert with an evaluator version that its metric cannot have.

    If the judge cannot be made here, the evaluator version is computed from its model's name. Metrics that compare by
    embeddings are then left out.
    """
    if all(alert.evaluator_version is None for alert in settings.alerts.values()):
        return
    try:
        metrics, shadows = metrics_of(settings), shadows_of(settings)
    except ConfigurationError:  # judge_problems reports it
        metrics, shadows = _stand_ins(settings)
    yield from map(ConfigurationError, refused_evaluator_versions(settings.alerts, metrics, shadows))


def _stand_ins(settings: Configuration) -> tuple[list[Metric], list[Metric]]:
    try:
        own = [
            _make_metric(name, parameters, settings.judge if jury is None else jury, settings)
            for name, parameters, jury in of_juries(settings)
        ]
        shadows = [_make_metric(*of_shadow, settings) for of_shadow in shadow_settings(settings)]
    except ConfigurationError:
        return [], []
    return [metric for metric in own if not hasattr(metric, "embeddings")], shadows


def _make_metric(
    name: str, parameters: Mapping[str, Any], judge: ChatModelSettings | JurySettings, settings: Configuration
) -> Metric:
    if isinstance(judge, JurySettings):
        jurors = [ModelStandIn(asked_model(juror)) for juror in judge.judges]
        then = None if judge.then is None else ModelStandIn(asked_model(judge.then))
        return create(name, judge=Jury(jurors, then=then), embeddings="lexical", **parameters)
    if judge.model == "lexical":
        return create(name, judge="lexical", **parameters)
    alert = settings.alerts.get(str(parameters.get("name", name)))
    _, _, rest = ((alert and alert.evaluator_version) or "").partition("/")
    pinned, model = rest.rpartition("/")[0], asked_model(judge)
    # Some integrations put a path before the model's name: models/gemini-2.5-pro.
    stand_in = ModelStandIn(pinned if pinned.endswith(f"/{model}") else model)
    return create(name, judge=stand_in, embeddings="lexical", **parameters)
