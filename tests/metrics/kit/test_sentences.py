"""Sentences end by the rules of their script, or of the language that a metric names: for pysbd and for the offline judge."""

from __future__ import annotations

from typing import Any

import pytest

from spanscore.core.codecs.text import script_of
from spanscore.core.sample import SingleTurnSample
from spanscore.errors import ConfigurationError
from spanscore.judges.lexical.words import sentences
from spanscore.metrics import ContextRelevancyV0, FactualCorrectness, Faithfulness
from spanscore.testing import ScriptedJudge

pytest.importorskip("pysbd")
from spanscore.metrics.kit.sentences_pysbd import segmenter

TEXTS: dict[str, tuple[str, list[str], str, str]] = {
    "CJK": ("", ["桥于1931年通车！", "它长412米。", "岛上有两所学校。"], "桥是哪一年通车的？", "猫会飞。"),
    "HIRAGANA": (
        "",
        ["橋は1931年に開通した。", "全長は412メートルです。", "島に学校が二つある。"],
        "橋はいつ開通した？",
        "猫は飛ぶ。",
    ),
    "DEVANAGARI": (
        " ",
        ["पुल 1931 में खुला।", "यह 412 मीटर लंबा है।", "द्वीप पर दो स्कूल हैं।"],
        "पुल कब खुला?",
        "बिल्ली उड़ती है।",
    ),
    "ARABIC": (
        " ",
        ["افتتح الجسر عام 1931.", "طوله 412 مترا.", "في الجزيرة، كما يقال، مدرستان."],
        "متى افتتح الجسر؟",
        "القط يطير.",
    ),
    "BENGALI": (" ", ["সেতুটি ১৯৩১ সালে খোলা হয়।", "এটি ৪১২ মিটার।", "দ্বীপে দুটি স্কুল আছে।"], "সেতু কবে?", "বিড়াল ওড়ে।"),
    "THAI": (" ", ["สะพานเปิดแล้ว", "ยาวสี่ร้อยเมตร", "เกาะมีโรงเรียน"], "สะพานเปิดเมื่อไร", "แมวบินได้"),
    "CYRILLIC": (
        " ",
        ["Мост открыли в 1931 году.", "Его длина велика.", "На острове две школы."],
        "Когда открыли мост?",
        "Кошка летает.",
    ),
    "HANGUL": (
        " ",
        ["다리는 1931년에 개통되었다.", "길이는 412미터이다.", "섬에는 학교가 있다."],
        "다리는 언제?",
        "고양이가 난다.",
    ),
    "LATIN": (
        " ",
        ["The bridge opened in 1931.", "It is long.", "The isle has two schools."],
        "When did it open?",
        "The cat flies.",
    ),
}
URDU = ["پل 1931 میں کھلا۔", "اس کی لمبائی 412 میٹر ہے۔", "جزیرے پر دو اسکول ہیں۔"]
BURMESE = ["တံတားကို ၁၉၃၁ တွင်ဖွင့်သည်။", "၄၁၂ မီတာရှိသည်။"]


@pytest.mark.parametrize("script", TEXTS)
def test_a_text_is_cut_by_the_rules_of_its_script(script: str) -> None:
    between, said, *_ = TEXTS[script]
    text = between.join(said)

    assert script_of(text) == script
    assert segmenter()(text) == said
    assert sentences(text) == said


@pytest.mark.parametrize("said", [URDU, BURMESE])
def test_other_full_stops_end_sentences_too(said: list[str]) -> None:
    assert segmenter()(" ".join(said)) == said
    assert sentences(" ".join(said)) == said


def test_each_line_has_its_own_script() -> None:
    lines = "\n".join(between.join(said) for between, said, *_ in TEXTS.values())

    assert segmenter()(lines) == [one for _, said, *_ in TEXTS.values() for one in said]


def test_a_language_counts_for_lines_of_its_script() -> None:
    german = "Sie wurde am 4. Mai eröffnet. Sie ist lang."

    assert segmenter("de")(german) == ["Sie wurde am 4. Mai eröffnet.", "Sie ist lang."]
    assert segmenter("de")("桥于1931年通车。它长412米。") == ["桥于1931年通车。", "它长412米。"]


@pytest.mark.parametrize("script", TEXTS)
def test_scores_are_shares_in_any_script(script: str) -> None:
    between, said, question, wrong = TEXTS[script]
    sample = SingleTurnSample(
        user_input=question, response=between.join([said[0], wrong]), retrieved_contexts=[between.join(said)]
    )
    judge = ScriptedJudge([{"step": "extract_sentences", "output": {"sentences": [said[0]]}}])

    assert ContextRelevancyV0(judge).score_sync(sample).value == pytest.approx(1 / 3)
    assert Faithfulness("lexical").score_sync(sample).value == 0.5


def test_a_language_is_named_by_two_letters_or_its_name() -> None:
    german, short = (ContextRelevancyV0("lexical", language=name) for name in ("German", "de"))

    assert german.version == short.version != ContextRelevancyV0("lexical").version


def test_claims_are_asked_for_in_the_language() -> None:
    judge = ScriptedJudge(
        [{"step": f"decompose_{text}", "output": {"claims": []}} for text in ("response", "reference")]
    )
    FactualCorrectness(judge, language="german").score_sync(SingleTurnSample(response="Ja.", reference="Ja."))

    assert all("in German" in call.instruction for call in judge.calls)
    assert "German" not in FactualCorrectness("lexical").steps["decompose_response"].instruction


@pytest.mark.parametrize("kind", [ContextRelevancyV0, FactualCorrectness])
@pytest.mark.parametrize("language", ["germn", "", 3])
def test_a_language_that_is_unknown_is_refused(kind: Any, language: Any) -> None:
    with pytest.raises(ConfigurationError, match="language is"):
        kind("lexical", language=language)
