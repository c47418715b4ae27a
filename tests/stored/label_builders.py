"""Cases, draws and sessions for the tests of labelling."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from spanscore.core.sample import SingleTurnSample
from spanscore.core.score import Scale
from spanscore.outputs.collected_cases import FoundScore
from spanscore.stored.label_cases import LabelCase, LabelDraw, LabelPick, draw_labels
from spanscore.stored.labelling import LabelChoice, LabelFile, LabelSession

METRIC = "faithfulness"
VERSION = "1/judge/1"
CHOICES = [LabelChoice("1", "pass", True), LabelChoice("2", "fail", False)]


def make_record(number: int, value: float = 0.9, **more: Any) -> dict[str, Any]:
    """Return a record of ``spanscore collect``."""
    score = {"value": value, "label": "pass" if value >= 0.5 else "fail", "evaluator_version": VERSION}
    return {
        "id": f"case {number}",
        "user_input": f"Question {number}?",
        "response": f"Answer {number}.",
        "retrieved_contexts": ["It was opened in 1931 by the mayor of the town."],
        "trace_id": f"{number + 1:032x}",
        "span_id": f"{number + 1:016x}",
        "times": 1,
        "scores": {METRIC: {**score, "explanation": "It was opened in 1931 by the mayor, is said.", **more}},
    }


def make_case(number: int, value: float | None = 0.9, disagreement: float | None = None) -> LabelCase:
    """Return a judged case; ``value``: None = no score."""
    label = None if value is None else "pass" if value >= 0.5 else "fail"
    explanation = "It was opened in 1931 by the mayor, is said."
    score = FoundScore(value, label, VERSION, 0.5, explanation, disagreement)
    names = {"trace_id": f"{number + 1:032x}", "span_id": f"{number + 1:016x}"}
    contexts = ["It was opened in 1931 by the mayor of the town."]
    sample = SingleTurnSample(
        user_input=f"Question {number}?", response=f"Answer {number}.", retrieved_contexts=contexts
    )
    scores = {} if value is None else {METRIC: score}
    return LabelCase(names, sample, scores, f"case {number}").with_verdict(METRIC, Scale())


def make_cases(number: int, seed: int = 0) -> list[LabelCase]:
    """Return cases with random scores, most of them passing."""
    random = Random(seed)
    return [make_case(place, round(random.betavariate(4, 1), 2)) for place in range(number)]


def draw_some(
    cases: list[LabelCase], pick: LabelPick = LabelPick.RANDOM, number: int = 100, seed: int = 0
) -> LabelDraw:
    """Draw cases for labelling."""
    return draw_labels(cases, pick, metric=METRIC, number=number, seed=seed)


def open_session(path: Path, draw: LabelDraw, annotator: str = "ann") -> LabelSession:
    """Return a session on an annotation file, with a clock of one second a look."""
    clock = count(1_800_000_000)
    file = LabelFile(path, f"{METRIC}_review", annotator, lambda: next(clock) * 10**9)

    def summarize() -> list[str]:
        return [f"{len(file.labels())} labels"]

    return LabelSession(draw, file, CHOICES, metric=METRIC, summarize=summarize)


def label_all(session: LabelSession, choice: int = 0) -> list[str]:
    """Label the remaining cases; return their keys in order."""
    keys, state = [], session.state()
    while state["case"] is not None:
        keys.append(state["case"]["key"])
        state = session.choose(keys[-1], choice, None)["next"]
    return keys
