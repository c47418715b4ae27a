"""``adapt``: a metric's prompts in another language keep each word that a program reads, and their file is reviewed."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from spanscore.core.sample import SingleTurnSample
from spanscore.errors import ConfigurationError, JudgeUnparseable
from spanscore.metrics import AnswerCorrectness, AspectCritic, Category, ContextRecall, FactualCorrectness
from spanscore.metrics.kit.judged import JudgedMetric
from spanscore.testing import ScriptedJudge

DECOMPOSE = {
    "instruction": "Liste die Tatsachen auf, die der Text behauptet.",
    "texts": [
        "Ada Holm, eine Ingenieurin aus Skerry, baute den Leuchtturm 1888; er leitet noch immer Schiffe.",
        "Ada Holm baute den Leuchtturm 1888.",
        "Der Leuchtturm leitet noch immer Schiffe.",
    ],
}
VERIFY = {"instruction": "Entscheide, ob der Kontext die Aussage stützt. Urteil 1: ja. Urteil 0: nein.", "texts": []}
CRITIC = {"instruction": "Urteile: ist die Antwort höflich? 1, wenn ja, sonst 0."}
CLAIMS = DECOMPOSE["texts"][1:]


def translator(*outputs: Any) -> ScriptedJudge:
    return ScriptedJudge([{"step": "translate_prompt", "output": output} for output in outputs], model="translator")


def precision(**parameters: Any) -> FactualCorrectness:
    return FactualCorrectness(ScriptedJudge(), mode="precision", **parameters)


def polite(**parameters: Any) -> AspectCritic:
    return AspectCritic(ScriptedJudge(), name="polite", definition="The response is polite.", **parameters)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "factual_correctness.de.json"
    precision().adapt_sync(translator(DECOMPOSE, VERIFY), "german").save(path)
    return path


async def test_instruction_and_texts_of_examples_are_translated_and_keys_stay() -> None:
    adapted = await precision().adapt(translator(DECOMPOSE, VERIFY), "german")

    step = adapted.metric.steps["decompose_response"]
    (example,) = step.examples
    assert step.instruction == DECOMPOSE["instruction"]
    assert (example.evidence, example.output) == ({"response": DECOMPOSE["texts"][0]}, {"claims": CLAIMS})
    assert adapted.metric.steps["verify_response_claims"].instruction == VERIFY["instruction"]


async def test_the_translated_prompts_reach_the_judge() -> None:
    judge = ScriptedJudge([{"step": "decompose_response", "output": {"claims": []}}])
    adapted = await FactualCorrectness(judge, mode="precision").adapt(translator(DECOMPOSE, VERIFY), "de")

    await adapted.metric.score(SingleTurnSample(response="Hallo!", reference="Hallo!"))

    assert judge.calls[0].instruction == DECOMPOSE["instruction"]


async def test_a_judge_is_asked_one_question_per_step() -> None:
    judge = translator(DECOMPOSE, VERIFY, DECOMPOSE, VERIFY)
    reports = list[tuple[int, int]]()

    adapted = await FactualCorrectness(ScriptedJudge()).adapt(
        judge, "german", progress=lambda at: reports.append((at.done, at.total))
    )

    assert (len(judge.calls), adapted.judge_calls, len(adapted.prompts)) == (4, 4, 4)
    assert reports == [(1, 4), (2, 4), (3, 4), (4, 4)]


async def test_the_evaluator_version_is_another() -> None:
    metric = precision()

    adapted = await metric.adapt(translator(DECOMPOSE, VERIFY), "german")

    assert adapted.evaluator_version_before == metric.evaluator_version
    assert adapted.evaluator_version == adapted.metric.evaluator_version != metric.evaluator_version


async def test_the_language_of_factual_correctness_is_that_of_its_prompts() -> None:
    judge = translator(DECOMPOSE, VERIFY)

    adapted = await precision(language="german").adapt(judge)

    assert (adapted.language, judge.calls[0].evidence["language"]) == ("de", "German")


async def test_a_lost_verdict_is_repaired_once_with_the_fault() -> None:
    judge = translator({"instruction": "Ist die Antwort höflich?"}, CRITIC)

    adapted = await polite().adapt(judge, "german")

    assert judge.calls[1].evidence["faults"] == ["the instruction lost 1, 0"]
    assert adapted.metric.steps["critique"].instruction == CRITIC["instruction"]


async def test_a_word_lost_twice_is_an_error_that_names_step_and_word() -> None:
    lost = {"instruction": "Ist die Antwort höflich? 1 oder null."}

    with pytest.raises(JudgeUnparseable, match=r"critique: the instruction lost 0, also after one repair"):
        await polite().adapt(translator(lost, lost), "german")


ORIGINAL = "Is `user_goal` met by {answer} and end_state? Give 1.5. noncommittal: 1 if it avoids."
GIVEN = Category(
    ScriptedJudge(), name="intent", categories={"refund": "Money back.", "other": "The rest."}, question="What for?"
)


@pytest.mark.parametrize(
    ("metric", "instruction", "lost"),
    [
        (polite(prompts={"critique": {"instruction": ORIGINAL}}), "Erfüllt {answer} end_state? 1.5, 1", "`user_goal`"),
        (polite(prompts={"critique": {"instruction": ORIGINAL}}), "Erfüllt `user_goal` end_state? 1.5, 1", "{answer}"),
        (polite(prompts={"critique": {"instruction": ORIGINAL}}), "`user_goal` {answer}? 1.5, 1", "end_state"),
        (polite(prompts={"critique": {"instruction": ORIGINAL}}), "`user_goal` {answer} end_state? 1,5; 1", "1.5"),
        (
            polite(prompts={"critique": {"instruction": 'Write a "reason" (response).'}}),
            "Ein Grund (response).",
            "reason",
        ),
        (
            polite(prompts={"critique": {"instruction": 'Write a "reason" (response).'}}),
            "Ein reason (Antwort).",
            "response",
        ),
        (GIVEN, "Wofür? refund: Geld zurück. sonstiges: der Rest.", "other"),
        (polite(), "रिपोर्ट करें: १ या 0", "1"),
    ],
)
async def test_what_a_program_reads_may_not_get_lost(metric: JudgedMetric, instruction: str, lost: str) -> None:
    answer = {"instruction": instruction, "texts": []}

    with pytest.raises(JudgeUnparseable) as raised:
        await metric.adapt(translator(answer, answer), "german")

    assert f"the instruction lost {lost}" in str(raised.value)


async def test_names_of_answer_fields_in_capitals_are_kept() -> None:
    metric = AnswerCorrectness(ScriptedJudge(), weights=(1.0, 0.0))
    texts = ["Wer baute den Leuchtturm?", "Ada Holm, 1888.", "Ada Holm baute ihn.", "Gebaut wurde er 1888."]
    claims = {"instruction": "Liste die Aussagen auf.", "texts": texts}
    sorting = {"instruction": "RP: richtig. FP: falsch. FN: fehlt. ground_truth", "texts": ["1898, 1888"] * 8}

    with pytest.raises(JudgeUnparseable, match="classify_statements: the instruction lost TP, also"):
        await metric.adapt(translator(claims, claims, sorting, sorting), "german")


async def test_a_word_next_to_chinese_letters_is_kept() -> None:
    adapted = await polite().adapt(translator({"instruction": "如果礼貌则为1否则为0"}), "chinese")

    assert adapted.language == "zh"


@pytest.mark.parametrize(
    ("texts", "fault"),
    [
        (DECOMPOSE["texts"][:2], "3 texts of examples became 2"),
        ([DECOMPOSE["texts"][0], "Ada Holm baute ihn.", CLAIMS[1]], "text 2 of the examples lost 1888"),
        ([DECOMPOSE["texts"][0], CLAIMS[0], " "], "text 3 of the examples is empty"),
    ],
)
async def test_examples_keep_their_number_and_their_figures(texts: list[str], fault: str) -> None:
    answer = {"instruction": DECOMPOSE["instruction"], "texts": texts}

    with pytest.raises(JudgeUnparseable, match=f"decompose_response: {fault}"):
        await precision().adapt(translator(answer, answer), "german")


async def test_a_quotation_stays_word_for_word_in_its_evidence() -> None:
    quoting = {"evidence": {"response": "Please wait, dear guest."}, "output": {"reason": "dear guest", "verdict": 1}}
    metric = polite(prompts={"critique": {"examples": [quoting]}})
    torn = {**CRITIC, "texts": ["Bitte warten Sie, lieber Gast.", "werter Gast"]}

    with pytest.raises(JudgeUnparseable, match="text 2 of the examples is no longer word for word in text 1"):
        await metric.adapt(translator(torn, torn), "german")


async def test_roles_and_tool_calls_of_a_conversation_are_not_translated() -> None:
    call = {"role": "assistant", "tool_calls": [{"name": "find_ferry", "args": {"day": "Monday"}}]}
    talk = {"user_input": [{"role": "user", "content": "When?"}, call]}
    shown = {"critique": {"examples": [{"evidence": talk, "output": {"verdict": 1}}]}}
    judge = translator({**CRITIC, "texts": ["Wann?"]})

    adapted = await polite(prompts=shown).adapt(judge, "german")

    assert judge.calls[0].evidence["texts"] == ["When?"]
    (example,) = adapted.metric.steps["critique"].examples
    assert example.evidence == {"user_input": [{"role": "user", "content": "Wann?"}, call]}


async def test_an_instruction_that_stays_as_it_was_is_no_translation() -> None:
    metric = ContextRecall(ScriptedJudge())
    same = {"instruction": metric.questions[0].instruction, "texts": []}

    with pytest.raises(JudgeUnparseable, match="classify_reference_sentences: the instruction was not translated"):
        await metric.adapt(translator(same, same), "german")


def test_the_file_is_the_adapted_metric(file: Path) -> None:
    adapted = precision().adapt_sync(translator(DECOMPOSE, VERIFY), "german")

    loaded = precision(prompts={"file": file})

    assert (loaded.evaluator_version, loaded.steps) == (adapted.evaluator_version, adapted.metric.steps)


def test_the_file_names_language_judge_and_original(file: Path) -> None:
    content = json.loads(file.read_text())

    named = ("metric", "language", "judge", "base_version", "reviewed")
    assert [content[name] for name in named] == ["factual_correctness", "de", "translator", "2", False]
    assert list(content["fitted_to"]) == ["decompose_response", "verify_response_claims"]


def test_a_file_that_nobody_reviewed_is_read_with_one_warning(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        precision(prompts={"file": file})
        precision(prompts={"file": file})

    (line,) = caplog.messages
    assert "the translation of factual_correctness is not reviewed" in line


def test_a_reviewed_file_is_read_without_a_warning(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | {"reviewed": True}))

    with caplog.at_level(logging.WARNING):
        precision(prompts={"file": file})

    assert caplog.messages == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reviewed": "yes"}, "reviewed is 'yes'; it is true or false"),
        ({"fitted_to": "0a"}, "is no fitted metric"),
        ({"fitted_to": {"decompose_response": "0a"}}, "lacks the step 'verify_response_claims'"),
        ({"metric": "polite"}, "was fitted to 'polite', not to 'factual_correctness'"),
    ],
)
def test_a_file_that_was_changed_by_hand_is_refused(file: Path, change: dict[str, Any], message: str) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | change))

    with pytest.raises(ConfigurationError, match=f"prompts.file: .*{message}"):
        precision(prompts={"file": file})


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"atomicity": "high"}, "the instruction or an example of decompose_response has changed since; adapt again"),
        ({"language": "german"}, "the instruction or an example of decompose_response has changed since; adapt again"),
    ],
)
def test_a_file_of_another_original_is_refused(file: Path, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        precision(prompts={"file": file}, **parameters)


@pytest.mark.parametrize(
    ("judge", "language", "message"),
    [
        ("lexical", "german", "the offline judge cannot translate; give a model"),
        (ScriptedJudge(), "klingon", "language is 'klingon'; .*Known are amharic, arabic"),
        (ScriptedJudge(), None, "cannot be adapted without a language"),
    ],
)
async def test_wrong_input_is_refused(judge: Any, language: str | None, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        await polite().adapt(judge, language)
