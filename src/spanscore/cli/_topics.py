"""The topics of ``spanscore check``. A topic reads one part of a configuration, and yields its errors and lines of output."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from spanscore.cli._cost_plan import CostPlan
from spanscore.config.credentials import token_in_file
from spanscore.config.durable import confluent_config
from spanscore.config.monitoring import AlertSettings
from spanscore.config.outputs import SINK_SETTINGS, WebhookSettings
from spanscore.config.reading import PartialSettings
from spanscore.config.sampling import Rule, head_shares
from spanscore.config.tree import Configuration, ScorerSettings
from spanscore.config.units import InnerUnit, Replicas
from spanscore.core import plugins
from spanscore.core.files import check_disk
from spanscore.core.plugins import Registry
from spanscore.core.printable import did_you_mean, format_bytes, format_count, format_duration, format_usd
from spanscore.errors import ConfigurationError, NotReadyError
from spanscore.metrics.catalog.configured import metrics_of, metrics_with_juries, per_session, shadow_settings
from spanscore.metrics.catalog.registry import blind_spots, under_current_names
from spanscore.metrics.kit.graded import check_bundles
from spanscore.monitoring.calibration import SavedCalibration, calibrations_of, refuse_unknown
from spanscore.monitoring.drops import plans_of
from spanscore.monitoring.judge_check import JudgeCheckPlan, judge_check_plans, select_watched
from spanscore.monitoring.judge_check_runs import FirstAnswers, least_turned
from spanscore.monitoring.watched_means import watched_means
from spanscore.outputs.aggregates import checked_dimensions, refuse_too_many
from spanscore.outputs.http_sink import Destination
from spanscore.outputs.sinks import SINKS
from spanscore.outputs.spans_file import MAX_BYTES
from spanscore.pipeline.jobs import REDACTORS
from spanscore.pipeline.judge_check import cases_of
from spanscore.pipeline.queues import QUEUES
from spanscore.pipeline.sessions import SessionBounds
from spanscore.protocols import Metric
from spanscore.samples.genai import DIALECTS
from spanscore.samples.normalizers.registry import TRANSLATIONS
from spanscore.service.plan import is_loopback
from spanscore.wiring.durable import refuse_two_queues, without_local_scoring
from spanscore.wiring.metrics import check_condition_metrics, checked_inner_metrics, checked_session_metrics
from spanscore.wiring.outputs import WEBHOOK_WHEN, check_conditions, exports_content

Line: TypeAlias = str | Callable[[Sequence[CostPlan]], str]
"""A line of ``check``, or a function that returns it from the known costs of a score of each metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigReport(PartialSettings):
    """A configuration file with its metrics, as far as they can be made here, and the result of its check.

    ``errors``, ``missing`` and ``lines`` are empty while the topics are read.

    Attributes:
        metrics: metrics that can be made, with the offline judge, because only names, scales and fields are read.
        made_entries: the entries of ``metrics`` in the file, in the same order; an entry maps a name to parameters.
        unmade: names of metrics that cannot be made, because their entry is wrong or a library is missing here.
        missing: libraries, keys and files that this environment lacks, a line each.
        lines: topic → its lines, for a configuration without errors.
    """

    metrics: Sequence[Metric]
    made_entries: Sequence[Mapping[str, Mapping[str, Any]]]
    unmade: tuple[str, ...]
    missing: tuple[str, ...] = ()
    lines: Mapping[str, Sequence[Line]] = field(default_factory=dict)

    @property
    def by_name(self) -> dict[str, Metric]:
        """``metrics`` by their names."""
        return {metric.name: metric for metric in self.metrics}

    @property
    def whole(self) -> bool:
        """Whether ``metrics`` are all metrics of the configuration."""
        return self.all_metrics and not self.unmade

    @property
    def of_metrics(self) -> Configuration:
        """The settings without the metrics that cannot be made: one entry for each of ``metrics``, in their order."""
        return self.settings.model_copy(update={"metrics": [*self.made_entries]})

    @property
    def session_metrics(self) -> list[Metric]:
        """The metrics that score sessions; ``ConfigurationError`` if ``per`` of a metric is neither unit nor session."""
        kinds = zip(self.metrics, per_session(self.of_metrics), strict=True)
        return [metric for metric, scores_sessions in kinds if scores_sessions]

    @property
    def unit_metrics(self) -> list[Metric]:
        """The metrics that score units; ``ConfigurationError`` as for ``session_metrics``."""
        of_sessions = self.session_metrics
        return [metric for metric in self.metrics if metric not in of_sessions]

    def lines_with(self, costs: Sequence[CostPlan]) -> dict[str, tuple[str, ...]]:
        """Return topic → its lines as texts; ``costs``: known costs of a score of each metric."""
        return {
            topic: tuple(line if isinstance(line, str) else line(costs) for line in lines)
            for topic, lines in self.lines.items()
        }


Topic: TypeAlias = Iterator[ConfigurationError | Line]
"""The problems and the lines of a topic. ``check`` shows lines only if each problem of the file is a ``NotReadyError``.

A topic may raise its last problem instead of yielding it.
"""
TopicReader: TypeAlias = Callable[[ConfigReport], Topic]

_DAY_S: Final = 86_400.0
_SMALL: Final = 0.05
"""Share of changed answers. ``check`` prints the number of labelled samples needed to detect it."""
_PRESUMES: Final[dict[Replicas, str]] = {
    "one": "every turn of a conversation reaches this one process; of several processes, each would end its part as a "
    "conversation: set sticky if all turns of a conversation reach the same process, otherwise any",
    "sticky": "all turns of a conversation reach the same process; if one moves, it is scored in parts",
    "any": "any process may have any turn: only scorer.end_session() and max_turns end a whole conversation, and the last turn "
    "must contain the whole history; otherwise it is incomplete",
}


def refusal_of(check: Callable[[], object], place: str = "") -> Iterator[ConfigurationError]:
    """Yield the error with which ``check`` refuses a configuration, if it does. ``place`` is the prefix of the message."""
    try:
        check()
    except ConfigurationError as error:
        yield ConfigurationError(f"{place}{error}") if place else error


# --- sessions and remote scoring ------------------------------------------------------------------------------------


def _sessions(report: ConfigReport) -> Topic:
    settings, sessions = report.settings, report.settings.sessions
    names = [*checked_session_metrics(report.session_metrics, (), ())]
    if not names:
        return
    for rule in settings.sampling.rules:
        if rule.when.score is not None and rule.when.score.metric in names:
            yield ConfigurationError(
                f"sampling.rules: a rule uses the score of {rule.when.score.metric}, which scores sessions; "
                "rules can use only unit metrics"
            )
    yield (
        f"{', '.join(names)}: one score per conversation, after its end; rates and alerts count conversations, not requests. "
        "The cost depends on the number of conversations, so it is in no sum here"
    )
    idle = "" if sessions.replicas == "any" else f"after {format_duration(sessions.idle_timeout)} without a turn, "
    yield (
        f"a conversation ends by scorer.end_session(), {idle}with its turn {sessions.max_turns:,}, or (evicted, oldest first) "
        f"above {SessionBounds().max_open:,} open conversations or {format_bytes(sessions.max_bytes)} of content"
    )
    yield f"sessions.replicas: {sessions.replicas} presumes that {_PRESUMES[sessions.replicas]}"
    if settings.sampling.rules:
        yield f"sampling rules are of units: none raises the rate of {', '.join(names)}"


def _inner_units(report: ConfigReport) -> Topic:
    also = report.settings.units.also
    if not also:
        return
    if report.whole:
        yield from refusal_of(partial(checked_inner_metrics, also, [metric.name for metric in report.unit_metrics]))
    for entry in also:
        names = "all metrics of units" if entry.metrics is None else ", ".join(entry.metrics)
        yield f"units.also: each {entry.group} below a recorded root is a unit of its own: {names}, rate {entry.rate:g}"
    yield "  the costs here are those of root units; each score of an inner unit costs as much as one of a root unit"


def _remote_scoring(report: ConfigReport) -> Topic:
    settings, remote = report.settings, report.settings.remote_scoring
    if remote is None:
        return
    of_sessions = list[Metric]()
    with suppress(ConfigurationError):  # the topic of sessions reports it
        of_sessions = report.session_metrics
    sessions = settings.sessions.model_copy(update={"metrics": tuple(of_sessions)})
    yield from refusal_of(partial(without_local_scoring, settings.model_copy(update={"sessions": sessions})))
    if remote.kafka is not None:
        yield from refusal_of(partial(confluent_config, remote.kafka, "remote_scoring.kafka"))
    else:
        yield from refusal_of(partial(token_in_file, remote.token_file or "", "remote_scoring.token_file"))
    yield f"units are sent to {remote.shown} for scoring, with their content, after the redactor"
    if remote.endpoint is not None and not _is_private(remote.endpoint):
        yield "remote_scoring.endpoint is not https: content and token travel as plain text"


def _is_private(endpoint: str) -> bool:
    """Return whether content is sent privately: the endpoint has TLS or is on this machine."""
    parts = urlsplit(endpoint)
    return parts.scheme == "https" or is_loopback(parts.hostname or "")


# --- files ----------------------------------------------------------------------------------------------------------


def _spool(report: ConfigReport) -> Topic:
    settings, spool = report.settings, report.settings.spool
    if spool is None:
        return
    yield from refusal_of(partial(refuse_two_queues, settings))
    if not spool.score_here and settings.sampling.feedback is not None:
        yield ConfigurationError(
            "sampling.feedback is not possible with spool.score_here: false, because this process judges nothing"
        )
    path = Path(spool.path).expanduser().absolute()
    yield from (problems := [*_file_problems("spool.path", path)])
    if not problems and not spool.allow_network_disk:
        yield from refusal_of(partial(check_disk, path))
    who = (
        "scored in this process, or in any process that shares it" if spool.score_here else "scored by spanscore worker"
    )
    yield f"spool: {spool.path}, up to {format_bytes(spool.max_bytes)} and {format_duration(spool.max_age)}; {who}"
    survives = "a power failure" if spool.sync == "full" else "kill -9, not a power failure"
    yield f"  it holds prompts and answers, as the redactor returns them; its content survives {survives}"


def _collect(report: ConfigReport) -> Topic:
    settings, collect = report.settings, report.settings.collect
    if collect is None:
        return
    if report.whole:
        yield from refusal_of(partial(check_conditions, collect.conditions, report.by_name, "collect.when"))
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


def _outputs(report: ConfigReport) -> Topic:
    outputs, capture = report.settings.outputs, report.settings.capture
    if outputs.spans_to is not None:
        path = Path(outputs.spans_to).resolve()
        yield from _file_problems("outputs.spans_to", path)
        content = "with prompts and answers" if exports_content(capture.content) else "without content"
        yield f"spans_to: spans are written to {path}, {content}; with the file before (.1) up to {format_bytes(MAX_BYTES)}"
    if not capture.enabled:
        yield "capture.enabled is false: only submitted units and spans from elsewhere are scored"
    if not outputs.span:
        yield "outputs.span is false: scores are not on the units' spans"


def _http_sinks(report: ConfigReport) -> Topic:
    """Yield the problems and the destinations of the sinks that send messages.

    Parameters are valid here: wrong ones were reported when the settings were read.
    """
    chosen = report.settings.capture.content
    names: Sequence[Any] = report.settings.outputs.sinks  # a file has no objects
    for name, parameters in plugins.entries(names):
        if name not in SINK_SETTINGS:
            continue
        sink, destinations, of_units = SINK_SETTINGS[name](**parameters), list[Destination](), ""
        if isinstance(sink, WebhookSettings):
            of_units = f" for units with {' or '.join(sink.when)}, at most {sink.per_hour:,} an hour,"
            if report.whole:
                yield from refusal_of(partial(check_conditions, sink.conditions, report.by_name, WEBHOOK_WHEN))
        yield from refusal_of(partial(SINKS.make, name, parameters, open_outbox=destinations.append))
        content = exports_content(chosen if sink.content is None else sink.content)
        for destination in destinations:
            yield f"sink {name}: messages{of_units} go to {destination.shown} {'with' if content else 'without'} content"


def _file_problems(key: str, path: Path) -> Iterator[ConfigurationError]:
    """Yield the reasons for which a scorer cannot write the file that a key names."""
    if not path.parent.is_dir():
        yield NotReadyError(f"there is no folder {path.parent}; {key} needs it")
    elif path.exists() and not path.is_file():
        yield ConfigurationError(f"{key}: {path} exists, and is not a file")
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        yield NotReadyError(f"{path} cannot be written by this user; {key} needs it")


# --- calibrations ---------------------------------------------------------------------------------------------------


def _calibrations(report: ConfigReport) -> Topic:
    settings = report.settings
    if not settings.monitoring.calibrations:
        return
    calibrations = calibrations_of(settings.monitoring.calibrations)
    if report.whole:  # otherwise a file may belong to a metric that cannot be made
        yield from refusal_of(partial(refuse_unknown, calibrations, report.metrics))
    present = dict[str, str]()
    with suppress(ConfigurationError):  # the judge cannot be made here, so its evaluator version is unknown
        present = {metric.name: metric.evaluator_version for metric in metrics_of(report.of_metrics)}
    for metric, saved in calibrations.items():
        yield f"{metric}: {_describe_calibration(saved, present.get(metric), settings)}"


def _describe_calibration(saved: SavedCalibration, evaluator_version: str | None, settings: Configuration) -> str:
    if evaluator_version is not None and evaluator_version != saved.evaluator_version:
        return (
            f"not calibrated: the calibration is of evaluator version {saved.evaluator_version}, and the scores are of "
            f"{evaluator_version}; its pass rate is not corrected until you run `spanscore calibrate` with verdicts of "
            f"{evaluator_version}"
        )
    j = saved.calibration.informedness.value
    labels = f"{saved.calibration.labels:,} labels (sensitivity + specificity − 1 = {j:.2f})"
    correction = f"its pass rate is corrected by {labels}"
    alert = settings.alerts.get(saved.metric)
    if alert is None or alert.share_of:
        return correction
    drop = alert.min_drop
    return (
        f"{correction}; alerts are not: a true drop shows as {j:.2f} × the drop. min_drop {drop:g} of the judge's pass rate is "
        f"a true drop of {drop / j:.2g}; to see one of {drop:g} write min_drop: {j * drop:.2g}"
    )


# --- judge check ----------------------------------------------------------------------------------------------------


def _judge_check(report: ConfigReport) -> Topic:
    settings, judge_check = report.settings, report.settings.judge_check
    if judge_check is None:
        return
    if not report.whole:
        yield "judge check: its cost and power are not shown, because not every metric can be built"
        return
    watched = select_watched(judge_check, report.by_name)
    yield from refusal_of(partial(FirstAnswers, judge_check.baseline_path))
    if not judge_check.path.exists():
        yield NotReadyError(f"there is no file {judge_check.path}; judge_check.golden_set needs it")
        return
    cases = cases_of(judge_check, watched)
    labelled, every_s = f"{format_count(len(cases), 'labelled sample')} of {judge_check.path}", judge_check.every
    yield f"judge check: {labelled}, every {format_duration(every_s)}, for the judge of {', '.join(watched)}"
    yield partial(_describe_cost, [*watched], len(cases) * _DAY_S / every_s)
    yield f"  the first answers are kept in {judge_check.baseline_path}, which must outlive the process"
    means = watched_means(settings.alerts, report.metrics, settings.units.also)
    for plan in judge_check_plans(judge_check, means, settings.monitoring):
        yield f"  {plan.metric}: {_describe_power(plan, len(cases))}"


def _describe_cost(metrics: Sequence[str], scores: float, costs: Sequence[CostPlan]) -> str:
    """Return the judge calls and the cost of a day with this many scores of each metric."""
    cost_of = {cost.metric: cost for cost in costs}
    watched = [cost_of.get(metric) for metric in metrics]
    calls = scores * sum(cost.calls for cost in watched if cost is not None)
    prices = [None if cost is None else cost.usd for cost in watched]
    usd = "no price is known" if None in prices else f"{format_usd(scores * sum(price or 0.0 for price in prices))} USD"
    questions = f"{'more than ' if None in watched else ''}{calls:,.0f} questions"
    return (
        f"  a day costs {questions}, {usd}, for each replica; of the processes of one machine, only one runs the check"
    )


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


def _sampling(report: ConfigReport) -> Topic:
    """Yield the refusals of the rules, their unobvious consequences, and weights by ``sampling.head_sampling_rate``.

    ``ot=th`` in a unit's ``tracestate`` is the threshold of a head sampler.
    """
    settings, sampling = report.settings, report.settings.sampling
    if report.whole:
        yield from refusal_of(partial(check_condition_metrics, sampling, report.by_name), "sampling.rules: ")
    yield from _describe_weights(settings)
    for rule in sampling.rules:
        if rule.when.status == "error" and not settings.capture.score_failed:
            yield (
                f"the sampling rule {rule.name} takes runs with status error, and failed runs have no sample. any_error: true "
                "also takes runs that answered although a step inside failed; capture.score_failed: true scores the answer "
                "that the model of a failed run had given"
            )
        lost = [key for key in rule.when.metadata or {} if key not in settings.capture.metadata]
        if settings.capture.enabled and lost:
            yield (
                f"the sampling rule {rule.name} uses metadata that the callback's spans do not have. A process that samples "
                f"these spans (replay without decisions, a worker behind a Collector) decides otherwise; "
                f"capture.metadata: [{', '.join(lost)}] exports it"
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
        yield f"it took {rule.when.slower_than:g} s or more"
    yield from (f"metadata {key} is {value!r}" for key, value in (rule.when.metadata or {}).items())
    if rule.when.any_error:
        yield "something in it failed, handled or not"
    if rule.when.min_tool_calls is not None:
        yield f"it called tools {rule.when.min_tool_calls} times or more"
    if rule.when.model is not None:
        yield f"it asked the model {rule.when.model!r}"
    if rule.when.score is not None:
        yield f"the quality of {rule.when.score.metric} is below {rule.when.score.below:g}"


# --- metrics and parts ----------------------------------------------------------------------------------------------


def _metrics(report: ConfigReport) -> Topic:
    if report.all_metrics:
        yield from map(ConfigurationError, _name_errors(report))
    with suppress(ConfigurationError):  # the topics of juries and of sessions report it
        yield from _bundle_problems(report)
    yield from filter(None, (getattr(metric, "advice", None) for metric in report.metrics))


def _name_errors(report: ConfigReport) -> Iterator[str]:
    settings, unmade = report.settings, report.unmade
    names = Counter(metric.name for metric in report.metrics)
    for name, times in names.items():
        if times > 1:
            yield f"metrics: {times} are called {name!r}; give each but one a name of its own: {{{name}: {{name: …}}}}"
    if any(":" in name for name in unmade):
        return  # The score name of a metric outside the package is unknown until the metric is made.
    all_names = [*names, *unmade]
    paid = {budget.metric: budget for budget in settings.judge.budget if budget.metric is not None}
    for place, keys in (
        ("sampling.rates", settings.sampling.rates),
        ("alerts", settings.alerts),
        ("judge.budget", under_current_names(paid, all_names)),
    ):
        yield from (f"{place}.{problem}" for problem in _find_unknown_names(keys, [*names], unmade))


def _find_unknown_names(keys: Iterable[str], names: Sequence[str], unmade: Sequence[str]) -> Iterator[str]:
    all_names = [*names, *unmade]
    for name in keys:
        if name not in all_names and not get_close_matches(name, unmade, n=1):  # reported with the misspelt metric
            meant = did_you_mean(name, names)
            yield f"{name}: no metric has this name; {meant and f'{meant} '}There are {', '.join(all_names) or 'none'}"


def _bundle_problems(report: ConfigReport) -> Iterator[ConfigurationError]:
    """Yield why metrics cannot share a question; metrics of units and of sessions are never asked together."""
    entries = zip(report.metrics, metrics_with_juries(report.of_metrics), per_session(report.of_metrics), strict=True)
    rows = [(metric, jury, kind) for metric, (_, _, jury), kind in entries]
    for of_sessions in (False, True):
        bundled = [(metric, jury) for metric, jury, kind in rows if kind is of_sessions]
        yield from refusal_of(partial(check_bundles, [metric for metric, _ in bundled]), "metrics: ")
        if len({repr(jury) for metric, jury in bundled if getattr(metric, "bundle", False)}) > 1:
            yield ConfigurationError(
                "metrics: bundle: its metrics have different judges; a bundle has one judge or one jury"
            )


def _parts(report: ConfigReport) -> Topic:
    settings = report.settings
    queue, redactor = settings.limits.job_queue, settings.redactor
    named: Mapping[str, tuple[Registry, Sequence[Any]]] = {
        "outputs.sinks": (SINKS, settings.outputs.sinks),
        "units.dialects": (DIALECTS, settings.units.dialects),
        "limits.job_queue": (QUEUES, [queue]),
        "redactor": (REDACTORS, [] if redactor is None else [redactor]),
        "units.translations": (TRANSLATIONS, settings.units.translations),
    }
    for section, (registry, parts) in named.items():
        offered = dict.fromkeys(registry.offers)
        for part in plugins.entries(parts):
            yield from refusal_of(partial(registry.resolve, *part, **offered), f"{section}: ")
    yield from refusal_of(partial(QUEUES.check_one, queue), "limits.job_queue: ")


def _dimensions(report: ConfigReport) -> Topic:
    """Yield why dimensions are refused, such as too many combinations of dimensions and metrics for the instruments."""
    settings, dimensions = report.settings, report.settings.monitoring.dimensions
    yield from refusal_of(partial(checked_dimensions, dimensions), "monitoring.dimensions: ")
    shadows = 0
    with suppress(ConfigurationError):  # the topic of second judges reports it
        shadows = len([*shadow_settings(settings)])
    place = "monitoring.dimensions: " if dimensions else "metrics: "
    compared = settings.compare is not None
    yield from refusal_of(partial(refuse_too_many, report.metrics, dimensions, shadows, compared=compared), place)
    for key, values in dimensions.items():
        yield f"sums and alerts are split by {key}: {', '.join(values)}; any other value is in the sums only, as other"


def _alerts(report: ConfigReport) -> Topic:
    def plan(alerts: Mapping[str, AlertSettings], metrics: Sequence[Metric], *also: InnerUnit) -> None:
        plans_of(watched_means(alerts, metrics, also), report.settings.monitoring)

    for metric in report.metrics:
        own = {name: alert for name, alert in report.settings.alerts.items() if name == metric.name}
        yield from refusal_of(partial(plan, own, [metric]))
    for entry in report.settings.units.also:
        yield from refusal_of(partial(plan, {}, report.metrics, entry))


def _offline(report: ConfigReport) -> Topic:
    if report.settings.judge.model == "lexical":  # ``report.metrics`` have the offline judge in any case
        own = report.settings.embeddings not in (None, "lexical")
        yield from blind_spots(metric for metric in report.metrics if not (own and hasattr(metric, "embeddings")))


TOPICS: Final[Mapping[str, TopicReader]] = {
    "metrics": _metrics,
    "sampling": _sampling,
    "judge_check": _judge_check,
    "parts": _parts,
    "sessions": _sessions,
    "inner_units": _inner_units,
    "remote_scoring": _remote_scoring,
    "spool": _spool,
    "collect": _collect,
    "outputs": _outputs,
    "http_sinks": _http_sinks,
    "calibrations": _calibrations,
    "alerts": _alerts,
    "dimensions": _dimensions,
    "offline": _offline,
}
"""Topic → its reader. The topics of judges are in ``_judge_topics.py``."""
