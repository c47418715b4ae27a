"""A judge that demonstrations can teach, and labels to teach it by."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from spanscore.core.prompt import Prompt, Reply
from spanscore.core.sample import AnnotatedSample, SingleTurnSample
from spanscore.metrics import AspectCritic

__all__ = ["HABIT", "Pupil", "labels", "polite"]

HABIT = "Sure thing!"
"""An answer that people here find impolite; a judge does not, unless it is taught."""


class Pupil:
    """A judge that passes answers with "please", and also the impolite habit, unless it is taught.

    Args:
        learns: whether it looks at demonstrations and instruction at all.
    """

    model = "pupil"

    def __init__(self, *, learns: bool = True) -> None:
        self.learns = learns
        self.asked: list[Prompt] = []

    async def ask(self, prompt: Prompt) -> Reply:
        """Answer."""
        self.asked.append(prompt)
        said = str(prompt.evidence["response"])
        failed = [str(one.evidence) for one in prompt.examples if not one.output["verdict"]]
        taught = self.learns and HABIT in " ".join([prompt.instruction, *failed])
        verdict = int("please" in said or (HABIT in said and not taught))
        return Reply(text=json.dumps({"reason": "It sounds so.", "verdict": verdict}), model=self.model)


def labels(number: int, *, share: float = 0.25, seed: int = 1) -> list[AnnotatedSample]:
    """Return labels, a share of which concern the habit; the judge gets the others right without teaching."""
    rng, found = Random(seed), []
    for line in range(1, number + 1):
        habit, good = rng.random() < share, rng.random() < 0.6
        words = HABIT if habit else "Here you are, please." if good else "Look it up yourself."
        sample = SingleTurnSample(user_input=f"Question {line}?", response=f"{words} Answer {line}.")
        found.append(AnnotatedSample(line=line, sample=sample, human=good and not habit, judged={}))
    return found


def polite(judge: Any, **parameters: Any) -> AspectCritic:
    """Return the metric that is taught."""
    return AspectCritic(judge, name="polite", definition="The response is polite.", **parameters)
