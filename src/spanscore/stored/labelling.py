"""Receives a person's labels of drawn cases, one case at a time, and appends each to an annotation file at once."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from spanscore.core.codecs.annotation_file import labels_so_far
from spanscore.core.files import LineFile
from spanscore.core.printable import printable_lines
from spanscore.core.sample import AnnotatedSample, HumanValue, Image, MultiTurnSample
from spanscore.core.score import Scale
from spanscore.errors import ConfigurationError, writing
from spanscore.stored.label_cases import LabelCase, LabelDraw

_MOST_KEYS: Final = 9
_SCORE_KEYS: Final = ("value", "label", "evaluator_version", "probability")


class LabelChoice(NamedTuple):
    """A value that a person can give.

    Attributes:
        key: key on the keyboard; empty if there are more than nine choices before it.
        text: text of the button.
        human: the value in the file.
    """

    key: str
    text: str
    human: HumanValue


def choices_of(scale: Scale) -> list[LabelChoice]:
    """Return the choices for a scale: its categories, its grades if they are digits, otherwise pass and fail."""
    if scale.categories:
        keys = [str(place) if place <= _MOST_KEYS else "" for place in range(1, len(scale.categories) + 1)]
        return [LabelChoice(key, word, word) for key, word in zip(keys, scale.categories, strict=True)]
    if scale.kind == "ordinal" and scale.range is not None:
        low, high = scale.range
        if low == int(low) and high == int(high) and low >= 0 and high <= _MOST_KEYS:
            return [LabelChoice(str(grade), str(grade), grade) for grade in range(int(low), int(high) + 1)]
    return [LabelChoice("1", "pass", True), LabelChoice("2", "fail", False)]


@dataclass(eq=False, repr=False)
class LabelFile:
    """Appends one person's labels with one name to an annotation file, and reads its labels. Processes may share the file.

    Methods raise ``ConfigurationError`` if the file cannot be read or written, or has wrong lines.

    Attributes:
        path: the file; created with its first label.
        name: name of the labels.
        annotator: name of the person.
        now_ns: clock, nanoseconds since 1970.
    """

    path: Path
    name: str
    annotator: str
    now_ns: Callable[[], int]

    def __post_init__(self) -> None:
        self._file = LineFile(self.path, None, durable=True)

    def labels(self) -> list[AnnotatedSample]:
        """Return the labels of all annotators; the rest of a line that another process could not finish is removed."""
        if self.path.exists():
            with writing(self.path):
                self._file.remove_unfinished_line()
        return labels_so_far(self.path, self.name)

    def own_keys(self) -> set[str]:
        """Return the keys of the cases that this person has labelled."""
        labels = ((case_key(labelled), labelled.label) for labelled in self.labels())
        return {key for key, label in labels if label is not None and label.annotator == self.annotator}

    def append(self, case: LabelCase, human: HumanValue, **more: Any) -> None:
        """Append a label with ``more`` fields that are not None; the label is on the disk when this returns."""
        scores = {metric: _score_fields(score._asdict()) for metric, score in case.scores.items()}
        record: dict[str, Any] = {
            **self._head(case, human),
            **more,
            "id": case.id,
            "scores": {metric: score for metric, score in scores.items() if {"value", "label"} & score.keys()},
            **case.sample.model_dump(exclude_none=True),
        }
        self._write({key: value for key, value in record.items() if value is not None})

    def withdraw(self, case: LabelCase, human: HumanValue) -> None:
        """Append a line that withdraws this person's label of a case; the line is on the disk when this returns."""
        self._write({**self._head(case, human), "withdrawn": True})

    def write_probabilities(self, probabilities: Callable[[Sequence[str]], Mapping[str, float]]) -> None:
        """Append each label again, with its old time, if its probability has changed.

        ``probabilities`` returns the probability of each of the labelled cases; a missing case keeps its own.
        """
        labels = self.labels()
        present = probabilities([*{case_key(labelled) for labelled in labels}])
        lines = self.path.read_text(encoding="utf-8-sig").split("\n") if labels else []
        for labelled in labels:
            probability = present.get(case_key(labelled), labelled.probability)
            if probability != labelled.probability:
                self._write({**json.loads(lines[labelled.line - 1]), "probability": probability})

    def _head(self, case: LabelCase, human: HumanValue) -> dict[str, Any]:
        when = datetime.fromtimestamp(self.now_ns() / 1e9, UTC).isoformat()
        return {"human": human, "name": self.name, "annotator": self.annotator, "when": when, **case.names}

    def _write(self, record: Mapping[str, Any]) -> None:
        line = f"{json.dumps(record, ensure_ascii=False, default=str)}\n"
        with writing(self.path):
            self._file.append(line.encode("utf-8", "replace"))


def case_key(labelled: AnnotatedSample) -> str:
    """Return the key of the labelled case; empty if the label names no case."""
    label = labelled.label
    if label is None or label.unit is None:
        return "" if label is None else label.key or ""
    return f"{label.unit.trace_id:032x}-{label.unit.span_id:016x}"


def _score_fields(score: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a score that a label may have; a category is not a value there."""
    fields = {name: score[name] for name in _SCORE_KEYS if score[name] is not None}
    return {name: value for name, value in fields.items() if name != "value" or not isinstance(value, str)}


# --- session --------------------------------------------------------------------------------------------------------


class StaleCaseError(ConfigurationError):
    """The page shows another case than the session, for example because it is open twice."""


@dataclass(slots=True)
class _Step:
    """A labelled case with its label, or a skipped case without a label."""

    case: LabelCase
    human: HumanValue | None
    comment: str | None = None


@dataclass(eq=False, repr=False)
class LabelSession:
    """One person's labels of one draw. Thread-safe; blocks while the disk blocks.

    The judge's verdict of a case is returned only after the person has chosen. Methods raise ``StaleCaseError`` for the key of
    another case than the page should show, and ``ConfigurationError`` if the file cannot be read or written.

    Attributes:
        draw: the drawn cases.
        file: the annotation file, with the person who labels.
        choices: values that the person can give.
        metric: metric of the judge; empty = no judge.
        summarize: returns lines about the labels of the file.

    Raises:
        ConfigurationError: the annotation file has errors.
    """

    draw: LabelDraw
    file: LabelFile
    choices: Sequence[LabelChoice]
    _: KW_ONLY
    metric: str
    summarize: Callable[[], Sequence[str]]

    def __post_init__(self) -> None:
        self._lock = Lock()
        self._labelled = self.file.own_keys()
        self._skipped = set[str]()
        self._steps = list[_Step]()

    def state(self) -> dict[str, Any]:
        """Return the present case without its verdict, the choices and the progress, as JSON types."""
        with self._lock:
            return self._state()

    def choose(self, key: str, choice: int, comment: str | None) -> dict[str, Any]:
        """Write a label of the shown case, perhaps with a note; return the case with the judge's verdict, and the next state.

        Raises:
            ConfigurationError: there is no such choice.
        """
        with self._lock:
            case = self._present(key)
            if not 0 <= choice < len(self.choices):
                raise ConfigurationError(f"choice {choice} does not exist; there are {len(self.choices)}")
            human = self.choices[choice].human
            self._write(case, human, comment)
            self._labelled.add(case.key)
            self._steps.append(_Step(case, human, comment))
            chosen = {"chosen": self.choices[choice].text, "differs": _differs(case, human, self.metric)}
            return {**chosen, "judge": self._reveal(case), "next": self._state()}

    def note(self, key: str, comment: str) -> dict[str, Any]:
        """Write the last label again, with a note; return the next state. ``key`` is that of the last labelled case."""
        with self._lock:
            step = self._steps[-1] if self._steps else None
            if step is None or step.case.key != key or step.human is None:
                raise StaleCaseError("this case is not the last labelled one: reload the page")
            self._write(step.case, step.human, comment or None)
            step.comment = comment or None
            return self._state()

    def skip(self, key: str) -> dict[str, Any]:
        """Leave the shown case out until the next start; return the next state."""
        with self._lock:
            case = self._present(key)
            self._skipped.add(case.key)
            self._steps.append(_Step(case, None))
            return self._state()

    def undo(self) -> dict[str, Any]:
        """Withdraw the last label, or the last skip, of this session; return the state, which shows its case again."""
        with self._lock:
            if self._steps:
                step = self._steps[-1]
                if step.human is not None:
                    self.file.withdraw(step.case, step.human)
                self._labelled.discard(step.case.key)
                self._skipped.discard(step.case.key)
                self._steps.pop()
                return {**self._state(), "comment": step.comment}
            return self._state()

    def finish(self) -> list[str]:
        """Write the probabilities of the labels; return the lines about the labels."""
        with self._lock:
            return self._summary()

    def _summary(self) -> list[str]:
        self.file.write_probabilities(self.draw.probabilities)
        return [printable_lines(line) for line in self.summarize()]

    def _write(self, case: LabelCase, human: HumanValue, comment: str | None) -> None:
        probability = self.draw.probabilities(case.key for case in self.draw.cases).get(case.key)
        representative = None if self.draw.representative else False
        self.file.append(case, human, comment=comment, probability=probability, representative=representative)

    def _present(self, key: str) -> LabelCase:
        case = self._next()
        if case is None or case.key != key:
            raise StaleCaseError("the page shows another case than the command: reload the page")
        return case

    def _next(self) -> LabelCase | None:
        done = self._labelled | self._skipped
        return next((case for case in self.draw.cases if case.key not in done), None)

    def _state(self) -> dict[str, Any]:
        case = self._next()
        drawn = {each.key for each in self.draw.cases}
        return {
            "done": len(self._labelled & drawn),
            "total": len(drawn),
            "skipped": len(self._skipped),
            "can_undo": bool(self._steps),
            "choices": [{"key": choice.key, "text": choice.text} for choice in self.choices],
            "case": None if case is None else show_case(case),
            "summary": self._summary() if case is None else None,
        }

    def _reveal(self, case: LabelCase) -> dict[str, Any] | None:
        """Return the judge's verdict and the case with its quoted passages; None without a score."""
        score = case.scores.get(self.metric)
        if score is None:
            return None
        value = score.value if isinstance(score.value, str | None) else f"{score.value:.2f}"
        parts = [part for part in (value, score.label) if part is not None]
        explanation = printable_lines(score.explanation or "")
        return {
            "verdict": " · ".join(parts),
            "label": score.label,
            "explanation": explanation,
            "case": show_case(case, explanation),
        }


def _differs(case: LabelCase, human: HumanValue, metric: str) -> bool | None:
    """Return whether person and judge differ; None if they use different scales, or the judge has no verdict."""
    if isinstance(human, bool):
        return None if case.passed is None else human != case.passed
    value = case.scores[metric].value if metric in case.scores else None
    return None if value is None else human != value


# --- a case on the page ---------------------------------------------------------------------------------------------

_LEAST_WORDS: Final = 5
"""Fewest consecutive words that count as a quotation if the judge's explanation has them, too."""
_IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_WORD: Final = re.compile(r"\w+")


def show_case(case: LabelCase, explanation: str = "") -> dict[str, Any]:
    """Return a case as JSON types: each text is a list of (text, whether the explanation quotes it)."""

    def show(text: str | None) -> list[tuple[str, bool]] | None:
        return None if text is None else [*quoted_parts(printable_lines(text), explanation)]

    sample = case.sample
    images = [_show_image(place, image) for place, image in enumerate(sample.images or (), 1)]
    shown: dict[str, Any] = {"key": case.key, "reference": show(sample.reference), "images": images}
    if isinstance(sample, MultiTurnSample):
        messages = [
            {
                "role": message["role"],
                "content": show(message.get("content") or None),
                "calls": [f"{call['name']} {_arguments(call['args'])}" for call in message.get("tool_calls", ())],
            }
            for message in sample.messages()
        ]
        return {**shown, "messages": messages}
    contexts = sample.retrieved_contexts
    return {
        **shown,
        "question": show(sample.user_input),
        "answer": show(sample.response),
        "contexts": None if contexts is None else [show(context) for context in contexts],
    }


def _show_image(place: int, image: Image) -> dict[str, str]:
    """Return the marker of an image and its data; the page loads no address, so an address is only named."""
    if image.base64 is None or image.media_type not in _IMAGE_TYPES:
        return {"text": printable_lines(f"[image {place}] {image.url or image.media_type}"), "source": ""}
    return {"text": f"[image {place}]", "source": f"data:{image.media_type};base64,{image.base64}"}


def _arguments(arguments: Any) -> str:
    return printable_lines(json.dumps(arguments, ensure_ascii=False, default=str))


def quoted_parts(text: str, explanation: str) -> Iterator[tuple[str, bool]]:
    """Yield the parts of a text in order, each with whether the explanation quotes it: five consecutive words or more."""
    words = [*_WORD.finditer(text)]
    in_text = [word[0].casefold() for word in words]
    explaining = [word.casefold() for word in _WORD.findall(explanation)]
    runs = {tuple(explaining[place : place + _LEAST_WORDS]) for place in range(len(explaining) - _LEAST_WORDS + 1)}
    quoted = [False] * len(words)
    for place in range(len(words) - _LEAST_WORDS + 1):
        if tuple(in_text[place : place + _LEAST_WORDS]) in runs:
            quoted[place : place + _LEAST_WORDS] = [True] * _LEAST_WORDS
    begin = 0
    for is_quoted, group in groupby(range(len(words)), key=quoted.__getitem__):
        if is_quoted:
            places = [*group]
            first, last = words[places[0]].start(), words[places[-1]].end()
            yield text[begin:first], False
            yield text[first:last], True
            begin = last
    yield text[begin:], False
