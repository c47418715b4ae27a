"""Reads a file of human labels into labelled samples: spanscore's JSON lines, or an export of ragas's annotations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from json import JSONDecodeError
from math import isfinite
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias, get_args

from spanscore.core.codecs.stored_sample import ID, KNOWN, sample_of
from spanscore.core.codecs.text import json_in, plain_number
from spanscore.core.printable import did_you_mean, format_count, names_listed
from spanscore.core.sample import AnnotatedSample, Annotation, HumanValue, JudgeResult
from spanscore.core.score import Label, Scale
from spanscore.core.span import UnitKey
from spanscore.errors import ConfigurationError, SampleError

# --- ragas annotations ----------------------------------------------------------------------------------------------

# The export is the JSON that ``MetricAnnotation.from_json`` reads (ragas 0.2 and 0.3): ``{metric: [annotation, …]}``, or for
# one metric ``{"name": metric, "samples": […]}``. An annotation has ``metric_input``, ``metric_output``, ``is_accepted`` and
# perhaps ``target``. The human's value is the output if it is accepted; otherwise the target; otherwise 1 - output for an
# output of 0 or 1, as in ragas's own optimizer. For other rejected outputs the right value is unknown: they are left out.


def _ragas_entries(text: str) -> dict[str, list[Any]] | None:
    """Return metric → its annotations; None if the text is not an export of ragas's annotations."""
    try:
        document = json_in(text)
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    is_one_metric = document.keys() == {"name", "samples"}
    by_metric = {document["name"]: document["samples"]} if is_one_metric else document
    entries = [entry for value in by_metric.values() for entry in (value if isinstance(value, list) else [None])]
    are_annotations = all(isinstance(entry, dict) and "metric_input" in entry for entry in entries)
    return by_metric if by_metric and are_annotations else None


def _read_ragas(annotations: list[Mapping[str, Any]], metric: str, path: str | Path) -> Iterator[AnnotatedSample]:
    for position, annotation in enumerate(annotations, 1):
        try:
            human = _human_value(annotation)
            if human is not None:
                judged = {metric: JudgeResult(_number(annotation.get("metric_output")), None, "")}
                sample = sample_of(annotation["metric_input"])
                yield AnnotatedSample(line=position, sample=sample, human=human, judged=judged)
        except (SampleError, ConfigurationError) as error:
            raise ConfigurationError(f"{path}: annotation {position} of {metric}: {error}") from error


def _human_value(annotation: Mapping[str, Any]) -> float | None:
    output = _number(annotation.get("metric_output"))
    if annotation.get("is_accepted"):
        return output
    if annotation.get("target") is not None:
        return _number(annotation["target"])
    return 1.0 - output if output in (0.0, 1.0) else None


def _number(value: Any) -> float:
    if isinstance(value, bool | int | float):
        return float(value)
    raise ConfigurationError("metric_output and target must be numbers")


# --- annotation file ------------------------------------------------------------------------------------------------

# A line is ``{"human": true, …}`` with, as needed, the fields of its sample, the judge's scores, and the ids of its unit.
# Errors name lines and keys, and quote no content.
#
# Lines are only appended. A later label of the same name, unit and annotator replaces an earlier one, and a line with
# ``"withdrawn": true`` removes it.

DEFAULT_NAME = "user_feedback"
"""Name of a label without ``name``."""
LABEL_KEYS: Final = (
    *("human", "scores", "probability", "session", "trace_id", "span_id", "key", "name", "annotator", "comment"),
    *("when", "withdrawn", "representative"),
)
"""Keys of a label in addition to the fields of its sample."""
_KEYS = KNOWN | {*LABEL_KEYS, ID}
_WORDS: Mapping[str, bool] = {
    **dict.fromkeys(("pass", "good", "yes", "true"), True),
    **dict.fromkeys(("fail", "bad", "no", "false"), False),
}
_VERDICT_LABELS: Mapping[object, Label] = {label: label for label in get_args(Label)}
_TRACE_DIGITS, _SPAN_DIGITS = 32, 16
_MOST_LINES = 5
"""Maximum number of wrong lines that an error shows."""
_Record: TypeAlias = Mapping[str, Any]


def passes(human: HumanValue, scale: Scale) -> bool:
    """Return whether a human's value is a pass.

    Args:
        human: true or false; a number on the metric's scale, which passes from ``scale.pass_at`` on; a category of the
            scale, unless it is in ``scale.bad``; or a word: pass, good, yes, true; fail, bad, no, false.
        scale: the metric's scale.

    Raises:
        ConfigurationError: another word, a number outside the scale, or a number on an open scale.
    """
    if isinstance(human, bool):
        return human
    if isinstance(human, str):
        if scale.bad and human in scale.categories:
            return scale.quality(human) == 1.0
        if needs_scale(human):
            words = ", ".join(_WORDS)
            raise ConfigurationError(f"a human label that is a word is one of {words}; or write true or false")
        return _WORDS[human.strip().lower()]
    if scale.range is None:
        raise ConfigurationError(
            "the metric's scale is open, so a number is neither pass nor fail; write true or false"
        )
    low, high = scale.range
    if not low <= human <= high:
        raise ConfigurationError(f"{human:g} is not on the metric's scale, {low:g} to {high:g}; write true or false")
    return scale.label(scale.quality(human)) == "pass"


def needs_scale(human: HumanValue) -> bool:
    """Return whether a human's value is a pass or a fail only by a metric's scale."""
    return not isinstance(human, bool) and (not isinstance(human, str) or human.strip().lower() not in _WORDS)


def read_annotations(path: str | Path, *, metric: str | None = None, name: str | None = None) -> list[AnnotatedSample]:
    """Return the samples of a file of labels, in order.

    If one annotator labelled one unit several times under one name, the last label counts: by ``when``, then by line. A line
    without ``when`` is as late as the earlier lines. If the last line withdraws the label, the unit has no label.

    Args:
        path: JSON lines, or JSON of ragas's ``MetricAnnotation`` or ``SingleMetricAnnotation``.
        metric: metric of the returned annotations of ragas; None = the only metric of the file.
        name: name of the labels that are returned; None = the only name in the file.

    Raises:
        ConfigurationError: the file cannot be read, or has errors; the message names the lines.
    """
    text = _text(path)
    by_metric = _ragas_entries(text)
    if by_metric is None:
        return _last_of_each(select_name(_read_annotations(_lines(text), path), name, path))
    chosen = metric or (next(iter(by_metric)) if len(by_metric) == 1 else "")
    if chosen not in by_metric:
        names = names_listed(sorted(by_metric))
        raise ConfigurationError(f"{path} has annotations of {names}; choose one of these metrics")
    return list(_read_ragas(by_metric[chosen], chosen, path))


def labels_so_far(path: Path, name: str) -> list[AnnotatedSample]:
    """Return the labels of one name in a file, as ``read_annotations``; empty if it has none, or does not exist.

    Raises:
        ConfigurationError: the file cannot be read, or has errors; the message names the lines.
    """
    text = _text(path) if path.exists() else ""
    read = _read_annotations(_lines(text), path) if text.strip() else []
    return _last_of_each([labelled for labelled in read if labelled.label is not None and labelled.label.name == name])


def _lines(text: str) -> Iterator[tuple[int, str]]:
    lines = enumerate(text.split("\n"), 1)  # splitlines() would also split a text at U+2028
    return ((number, line) for number, line in lines if line.strip())


def annotated_records(records: Iterable[Any]) -> list[AnnotatedSample]:
    """Return records, read like the lines of a file, in order. An ``AnnotatedSample`` is unchanged.

    Without a withdrawn label, all labels count, also several of one annotator on one unit. Otherwise the last label of each
    annotator on each unit counts, as in a file.

    Raises:
        ConfigurationError: there are no records, or they have errors; the message names their positions.
    """
    read = _read_annotations(enumerate(records, 1), "the labels")
    return _last_of_each(read) if any(labelled.withdrawn for labelled in read) else read


def _read_annotations(records: Iterable[tuple[int, Any]], place: str | Path) -> list[AnnotatedSample]:
    read: list[AnnotatedSample] = []
    faults: list[str] = []
    for number, record in records:
        try:
            read.append(record if isinstance(record, AnnotatedSample) else _read_record(number, record))
        except (SampleError, ConfigurationError) as error:
            faults.append(f"  line {number}: {error}")
    if faults:
        more = [f"  and {len(faults) - _MOST_LINES} more"] if len(faults) > _MOST_LINES else []
        count = format_count(len(faults), "wrong line")
        raise ConfigurationError("\n".join([f"{place}: {count}", *faults[:_MOST_LINES], *more]))
    if not read:
        raise ConfigurationError(f'{place} has no labels; a line is {{"human": true, …}}')
    return read


def annotations_in(path: str | Path) -> Iterator[tuple[int, Annotation | ConfigurationError]]:
    """Yield the line number of each label of a file of JSON lines, in order, with the label or its error.

    Each label must name its unit. Withdrawn labels are left out, and so are the lines that withdraw them.

    Raises:
        ConfigurationError: the file cannot be read. Raised at the first label.
    """
    entries: list[tuple[int, int, Annotation | ConfigurationError]] = []
    withdrawals: dict[object, tuple[int, int]] = {}  # time and line of the last one
    latest: dict[object, int] = {}
    for number, line in _lines(_text(path)):
        try:
            record = _record(line)
            label = _label(record)
        except ConfigurationError as error:
            entries.append((0, number, error))
            continue
        time_ns = _time_ns(label, latest)
        if not _has_unit(label):
            missing = ConfigurationError("its unit is missing: give trace_id and span_id, or key")
            entries.append((0, number, missing))
        elif _is_withdrawn(record):
            last = withdrawals.get(_identity(label), (0, 0))
            withdrawals[_identity(label)] = max(last, (time_ns, number))
        else:
            entries.append((time_ns, number, label))
    for time_ns, number, entry in entries:
        if isinstance(entry, Annotation) and (time_ns, number) < withdrawals.get(_identity(entry), (0, 0)):
            continue
        yield number, entry


def _has_unit(label: Annotation) -> bool:
    return label.unit is not None or label.key is not None


def select_name(samples: list[AnnotatedSample], name: str | None, path: str | Path) -> list[AnnotatedSample]:
    """Return the labels of one name.

    Args:
        samples: the labelled samples of a file.
        name: the name; None = the only name of the labels.
        path: path of the file, for messages.

    Raises:
        ConfigurationError: the labels have several names without a ``name``, or no label has this name.
    """
    names = sorted({sample.label.name for sample in samples if sample.label is not None})
    if name is None and len(names) > 1:
        raise ConfigurationError(f"{path} has labels of several names, choose one: {names_listed(names)}")
    if name is not None and name not in names:
        raise ConfigurationError(f"{path} has no label named {name!r}; there are: {names_listed(names)}")
    return [sample for sample in samples if name is None or (sample.label is not None and sample.label.name == name)]


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 text") from error


def _last_of_each(samples: list[AnnotatedSample]) -> list[AnnotatedSample]:
    """Return the last label of each name, unit and annotator, in the order of lines, unless it is withdrawn."""
    last: dict[object, AnnotatedSample] = {}
    latest: dict[object, int] = {}
    times = [0 if sample.label is None else _time_ns(sample.label, latest) for sample in samples]
    # The order is stable: of labels with one time, the later line counts.
    for _, sample in sorted(zip(times, samples, strict=True), key=itemgetter(0)):
        label = sample.label
        last[_identity(label) if label is not None and _has_unit(label) else sample.line] = sample
    return sorted((sample for sample in last.values() if not sample.withdrawn), key=lambda sample: sample.line)


def _time_ns(label: Annotation, latest: dict[object, int]) -> int:
    """Return the time of a label; without ``when``, the latest time of earlier lines with its name, unit and annotator.

    ``latest`` has these times; that of the label is added.
    """
    before_ns = latest.get(_identity(label), 0)
    time_ns = before_ns if label.when_ns is None else label.when_ns
    latest[_identity(label)] = max(before_ns, time_ns)
    return time_ns


def _identity(label: Annotation) -> object:
    return label.name, label.unit, label.key, label.annotator


def _read_record(number: int, value: Any) -> AnnotatedSample:
    record = _record(value)
    label = _label(record)
    has_sample = any(record.get(name) is not None for name in KNOWN)
    return AnnotatedSample(
        line=number,
        sample=sample_of(record) if has_sample else None,
        human=label.value,
        judged=_read_results(record.get("scores")),
        group=_optional(record, "session", _a_text) or _optional(record, "trace_id", _a_text),
        probability=_optional(record, "probability", _a_probability),
        id=_optional(record, "id", _an_id),
        label=label,
        withdrawn=_is_withdrawn(record),
        representative=_optional(record, "representative", _a_flag) is not False,
    )


def _is_withdrawn(record: _Record) -> bool:
    return bool(_optional(record, "withdrawn", _a_flag))


def _record(value: Any) -> _Record:
    try:
        record = json_in(value) if isinstance(value, str) else value
    except JSONDecodeError as error:
        raise ConfigurationError(f"not valid JSON: {error.msg}") from error
    if not isinstance(record, dict):
        raise ConfigurationError(f"a label is an object with keys, not a {type(record).__name__}")
    unknown = [name for name in record if name not in _KEYS]
    if unknown:
        similar = did_you_mean(unknown[0], sorted(_KEYS))
        more = f", and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        hint = f"; {similar}" if similar else f". Keys are {', '.join(LABEL_KEYS)}, id, a sample's fields"
        raise ConfigurationError(f"no such key: {unknown[0]!r}{more}{hint}")
    return record


def _label(record: _Record) -> Annotation:
    human = record.get("human")
    if human is None:
        raise ConfigurationError("no human: it is the human's value, true or false, a number or a word")
    is_verdict = isinstance(human, bool) or (isinstance(human, str) and human.strip())
    return Annotation(
        name=_optional(record, "name", _a_text) or DEFAULT_NAME,
        value=human if is_verdict else _a_number("human", human),
        annotator=_optional(record, "annotator", _a_text) or "HUMAN",
        comment=_optional(record, "comment", _a_text),
        when_ns=_optional(record, "when", _a_time),
        unit=_unit(record),
        key=_optional(record, "key", _a_text),
    )


def _unit(record: _Record) -> UnitKey | None:
    """Return the unit's key; None without a span id. A trace id alone is valid: it groups labels."""
    trace, span = record.get("trace_id"), record.get("span_id")
    if span is not None and trace is None:
        raise ConfigurationError("span_id without trace_id")
    trace_id = 0 if trace is None else _digits("trace_id", trace, _TRACE_DIGITS)
    return None if span is None else UnitKey(trace_id, _digits("span_id", span, _SPAN_DIGITS))


def _digits(name: str, value: Any, count: int) -> int:
    try:
        number = int(value, 16) if isinstance(value, str) and len(value) == count else 0
    except ValueError:
        number = 0
    return number or _refuse(name, f"{count} hex digits, not all zero")


def _read_results(value: Any) -> dict[str, JudgeResult]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        _refuse("scores", 'a mapping: {"faithfulness": {"value": 0.8, "label": "pass", "evaluator_version": "…"}}')
    return {metric: _read_result(f"scores.{metric}", result) for metric, result in value.items()}


def _read_result(place: str, result: Any) -> JudgeResult:
    if not isinstance(result, dict):
        return JudgeResult(_a_number(place, result), None, "")
    unknown = result.keys() - {"value", "label", "evaluator_version", "probability"}
    if unknown:
        names = names_listed(sorted(unknown))
        _refuse(place, f"made of value, label, evaluator_version and probability only, not {names}")
    value, label, evaluator_version = result.get("value"), result.get("label"), result.get("evaluator_version")
    if value is None and label is None:
        _refuse(place, "a value, a label or both")
    if label is not None and label not in _VERDICT_LABELS:
        _refuse(f"{place}.label", " or ".join(map(str, _VERDICT_LABELS)))
    number = None if value is None else _a_number(f"{place}.value", value)
    return JudgeResult(
        number,
        _VERDICT_LABELS.get(label),
        "" if evaluator_version is None else _a_text(f"{place}.evaluator_version", evaluator_version),
        None if (chance := result.get("probability")) is None else _a_probability(f"{place}.probability", chance),
    )


def _optional(record: _Record, name: str, read: Callable[[str, Any], Any]) -> Any:
    value = record.get(name)
    return None if value is None else read(name, value)


def _a_text(name: str, value: Any) -> str:
    return value if isinstance(value, str) and value else _refuse(name, "a text")


def _a_number(name: str, value: Any) -> float:
    number = plain_number(value)
    return float(number) if number is not None and isfinite(number) else _refuse(name, "a finite number")


def _a_probability(name: str, value: Any) -> float:
    number = _a_number(name, value)
    return number if 0 < number <= 1 else _refuse(name, "more than 0 and at most 1")


def _a_flag(name: str, value: Any) -> bool:
    return value if isinstance(value, bool) else _refuse(name, "true or false")


def _an_id(name: str, value: Any) -> str | int:
    if isinstance(value, str | int) and not isinstance(value, bool):
        return value
    return _refuse(name, "a text or a whole number")


def _a_time(name: str, value: Any) -> int:
    """Return nanoseconds since 1970, from seconds or from ISO 8601 with an offset."""
    if not isinstance(value, str):
        return round(_a_number(name, value) * 1e9)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        return _refuse(name, "seconds since 1970, or ISO 8601 with an offset: 2026-11-23T09:30:00Z")
    return round(moment.timestamp() * 1e9)


def _refuse(name: str, allowed: str) -> NoReturn:
    raise ConfigurationError(f"{name} must be {allowed}")
