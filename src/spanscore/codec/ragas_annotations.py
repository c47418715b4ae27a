"""ragas's annotations → labelled samples: the JSON that ``MetricAnnotation.from_json`` reads (ragas 0.2 and 0.3).

It is ``{metric: [annotation, …]}``, or of one metric ``{"name": metric, "samples": […]}``; an annotation has ``metric_input``,
``metric_output``, ``is_accepted`` and perhaps ``target``. What the human said is the output that was accepted; else the
target; else, of an output that is 0 or 1, the other one, as ragas's own optimizer takes it. Of any other output that was not
accepted nobody knows what is right, and it is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spanscore.codec.json_text import json_in
from spanscore.codec.stored_sample import sample_of
from spanscore.errors import ConfigurationError, SampleError
from spanscore.model.annotation import AnnotatedSample, JudgeResult
from spanscore.settings.printable import names_listed

__all__ = ["annotations_of"]


def annotations_of(text: str, metric: str | None, path: str | Path) -> list[AnnotatedSample] | None:
    """Return what a file's text annotates; None where it holds no annotations of ragas.

    Args:
        metric: whose annotations; None = the only one's.
        path: for the message.

    Raises:
        ConfigurationError: none of that metric, several and none chosen, or an annotation is wrong.
    """
    held = _held(text)
    if held is None:
        return None
    chosen = metric or (next(iter(held)) if len(held) == 1 else "")
    if chosen not in held:
        raise ConfigurationError(f"{path} annotates {names_listed(sorted(held))}; choose one of these metrics")
    return list(_read(held[chosen], chosen, path))


def _held(text: str) -> dict[str, list[Any]] | None:
    try:
        found = json_in(text)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    held = {found["name"]: found["samples"]} if found.keys() == {"name", "samples"} else found
    return held if held and all(map(_are_annotations, held.values())) else None


def _are_annotations(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) and "metric_input" in one for one in value)


def _read(annotations: list[Mapping[str, Any]], metric: str, path: str | Path) -> Iterator[AnnotatedSample]:
    for place, one in enumerate(annotations, 1):
        try:
            human = _human(one)
            if human is not None:
                judged = {metric: JudgeResult(_number(one.get("metric_output")), None, "")}
                yield AnnotatedSample(line=place, sample=sample_of(one["metric_input"]), human=human, judged=judged)
        except (SampleError, ConfigurationError) as error:
            raise ConfigurationError(f"{path}: annotation {place} of {metric}: {error}") from error


def _human(one: Mapping[str, Any]) -> float | None:
    output = _number(one.get("metric_output"))
    if one.get("is_accepted"):
        return output
    if one.get("target") is not None:
        return _number(one["target"])
    return 1.0 - output if output in (0.0, 1.0) else None


def _number(value: Any) -> float:
    if isinstance(value, bool | int | float):
        return float(value)
    raise ConfigurationError("metric_output and target must be numbers")
