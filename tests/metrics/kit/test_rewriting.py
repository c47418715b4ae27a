"""A model may propose the judge's instruction from the judge's mistakes; its proposal must pass the same gate."""

from __future__ import annotations

import json
from typing import Any

from tests.metrics.kit.classroom import HABIT, Pupil, labels, polite

from spanscore.core.prompt import Prompt, Reply
from spanscore.errors import JudgeError
from spanscore.judges.rendering import render


class Writer:
    """A model that writes one instruction after the other."""

    model = "writer"

    def __init__(self, *instructions: str) -> None:
        self.instructions = instructions
        self.asked: list[Prompt] = []

    async def ask(self, prompt: Prompt) -> Reply:
        """Write."""
        self.asked.append(prompt)
        if not self.instructions:
            raise JudgeError("nobody is there")
        return Reply(text=json.dumps({"instruction": self.instructions[prompt.vote_index % len(self.instructions)]}))


def test_an_instruction_that_is_shown_to_help_is_kept() -> None:
    writer = Writer("Is it polite?", f"Is it polite? {HABIT} is not.")

    fitted = polite(Pupil()).fit_sync(labels(150), demonstrations=0, candidates=4, rewriter=writer)

    assert fitted.prompts == {"critique": {"instruction": f"Is it polite? {HABIT} is not."}}
    assert (fitted.kept, fitted.candidates, len(writer.asked)) == (True, 4, 4)
    assert "Sent with every question from now on, as instruction:" in str(fitted)


def test_every_other_candidate_has_an_instruction_of_its_own() -> None:
    judge, writer = Pupil(learns=False), Writer("Polite?")

    fitted = polite(judge).fit_sync(labels(150), candidates=5, rewriter=writer)

    words = {(prompt.instruction == "Polite?", len(prompt.examples)) for prompt in judge.asked}
    assert words == {(False, 0), (False, 4), (True, 4)}
    assert (fitted.candidates, len(writer.asked)) == (5, 3)


def test_the_model_is_shown_what_the_judge_got_wrong_as_evidence() -> None:
    writer = Writer("Polite?")

    polite(Pupil()).fit_sync(labels(150), candidates=2, rewriter=writer)

    (asked,) = writer.asked
    cases: list[dict[str, Any]] = asked.evidence["cases"]
    assert {(case["judge"], case["people"], HABIT in case["shown"]["response"]) for case in cases} == {(1.0, 0, True)}
    assert 0 < len(cases) <= 8
    system, user = render(asked)
    assert HABIT not in system + user.partition("</evidence>")[2]


def test_a_model_that_writes_nothing_leaves_the_demonstrations() -> None:
    fitted = polite(Pupil()).fit_sync(labels(150), candidates=4, rewriter=Writer())

    assert (fitted.kept, fitted.candidates) == (True, 4)
    assert "the rewriter returned no usable instruction for 2 of 2 requests" in fitted.notes


def test_a_judge_without_a_miss_gives_a_model_nothing_to_learn_from() -> None:
    writer = Writer("Polite?")

    fitted = polite(Pupil()).fit_sync(labels(60, share=0.0), demonstrations=0, candidates=2, rewriter=writer)

    assert (fitted.kept, fitted.candidates, writer.asked) == (False, 0, [])
    assert "the rewriter was not called: no verdict on the 18 labels for demonstrations was wrong" in fitted.notes
