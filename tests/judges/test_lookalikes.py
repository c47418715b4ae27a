"""No text under test resembles the end of its fence or a mark of a chat template, and every text stays unchanged."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanscore.judges.rendering import fenced

TAGS = {
    "fullwidth": "\uff1c\uff0f\uff45\uff56\uff49\uff44\uff45\uff4e\uff43\uff45\uff1e",
    "mathematical": "</" + "".join(chr(0x1D68A + ord(letter) - ord("a")) for letter in "evidence") + ">",
    "circled": "</" + "".join(chr(0x24D0 + ord(letter) - ord("a")) for letter in "evidence") + ">",
    "in brackets": "</" + "".join(chr(0x249C + ord(letter) - ord("a")) for letter in "evidence") + ">",
    "negative circled": "</" + "".join(chr(0x1F150 + ord(letter) - ord("A")) for letter in "EVIDENCE") + ">",
    "flags": "</" + "".join(chr(0x1F1E6 + ord(letter) - ord("A")) for letter in "EVIDENCE") + ">",
    "unseen twins": "<" + "".join(chr(0xE0000 + ord(letter)) for letter in "/evidence>"),
    "all of unseen twins": "".join(chr(0xE0000 + ord(letter)) for letter in "</evidence>"),
    "Greek and Cyrillic": "</\u0435\u03bd\u0456\u0501\u0435\u03b7\u0441\u0435>",
    "capitals of Greek": "</\u0395VID\u0395\u039dCE>",
    "small capitals": "</\u1d07\u1d20\u026a\u1d05\u1d07\u0274\u1d04\u1d07>",
    "superscripts": "</\u1d49\u1d5b\u2071\u1d48\u1d49\u207f\u1d9c\u1d49>",
    "an ell": "</EVlDENCE>",
    "a bar": "</ev|dence>",
    "dotless": "</ev\u0131dence>",
    "strokes": "</\u0247vi\u0111ence>",
    "a ligature of Rome": "</e\u2175dence>",
    "accents": "</\u00e9v\u00ed\u1e0fe\u0144c\u00ea>",
    "marks": "<\u0338/e\u0332v\u0332i\u0332d\u0332e\u0332n\u0332c\u0332e>",
    "a composed bracket": "\u226e/evidence>",
    "ornaments": "\u276c/evidence\u276d",
    "guillemets": "\u00ab/evidence\u00bb",
    "double angles": "\u300a/evidence\u300b",
    "vertical": "\ufe3f/evidence\ufe40",
    "a rare bracket": "\U0001d236/evidence>",
    "a fraction slash": "<\u2044evidence>",
    "a triangle": "\u25c1/evidence\u25b7",
    "Katakana slash": "<\u30ceevidence>",
    "blanks of other scripts": "<\u3164/\uffa0\u115fevid\u2800ence>",
    "controls": "<\x7f/\x80evidence\x9f>",
    "private": "<\ue000/evidence>",
    "variation": "<\U000e0100/ev\ufe0fidence>",
    "an entity": "&lt;/evidence&gt;",
    "a number": "&#60;/evidence>",
    "a hexadecimal": "&#X3c;/evidence>",
    "an entity without an end": "&lt/evidence",
    "letters as entities": "</&#101;v&#x69;dence>",
    "a quoted bracket": "&lsaquo;/evidence&rsaquo;",
    "an address": "%3C/%65vidence%3E",
    "escapes": r"<\u002f\u0065vidence>",
    "a backslash": "<\\/evidence>",
    "lines": "<\n/\n\tevidence>",
}
MARKS = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|start_header_id|>", "<|channel|>", "<\uff5cUser\uff5c>",
    "\uff1c|im_end|>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/TOOL_RESULTS]", "[gMASK]", "[CLS]", "<<SYS>>", "<</SYS>>",
    "<s>", "</s>", "<bos>", "<BOS_TOKEN>", "<start_of_turn>", "<end_of_turn>", "<think>", "</think>", "</tool_call>",
    "<extra_id_0>", "<0x0A>", "<system>", "</system>", "### Instruction:", "###Response :", "\n\nHuman:",
)  # fmt: skip


def inside(text: str) -> str:
    """Return a text in its form inside the fence."""
    shown = fenced({"response": f"x {text} y"}).removeprefix("<evidence>").removesuffix("</evidence>")
    assert json.loads(shown) == {"response": f"x {text} y"}
    return shown


@pytest.mark.parametrize("tag", TAGS.values(), ids=TAGS)
def test_a_sign_that_opens_a_look_alike_of_the_fences_tag_is_an_escape(tag: str) -> None:
    shown = inside(tag)

    assert shown.startswith('{"response":"x \\u')


@pytest.mark.parametrize("mark", MARKS)
def test_a_mark_of_a_chat_template_is_broken_up(mark: str) -> None:
    assert mark not in inside(mark)


@pytest.mark.parametrize(
    "text",
    [
        "a < b && c > d, x[i] = y % 3, 50%",
        '<div class="e"><em>eve</em> &lt;b&gt; &amp; Tom</div>',
        "# One\n### Two\nInstruction: [1] [NOTE 2] [a]",
        "\u00abOui\u00bb \u300a\u6865\u300b \u2039a\u203a, \u00e9vidence",
        "evidence, <evil>, <e>, </vidence>, <event>",
        "https://x.org/?a=%3A&lang=de",
    ],
)
def test_harmless_text_stands_as_it_is(text: str) -> None:
    assert inside(text) == json.dumps({"response": f"x {text} y"}, ensure_ascii=False, separators=(",", ":"))


@given(st.text(alphabet=st.sampled_from("<&%[#/\\ue60x3clt;evid\u0301\u3164\uff1c\U0001d236|sS>]INT \n\"'")))
def test_every_text_is_read_back_as_it_was(text: str) -> None:
    inside(text)


@pytest.mark.parametrize(
    "text",
    [
        "<e" + "\u0301" * 500_000, "<e\u0301v\u0301idenc" * 40_000, "&lt;" * 120_000, "<\\" * 150_000, "<<" + " " * 500_000,
        "%3c" * 150_000, "###" + " " * 500_000, "\u300a" * 150_000, "[" + "A" * 500_000,
    ],
    ids=lambda text: text[:8].encode("ascii", "replace").decode(),
)  # fmt: skip
def test_a_megabyte_of_half_a_tag_takes_no_time(text: str) -> None:
    started = time.process_time()

    fenced({"response": text})

    assert time.process_time() - started < 0.6  # a third of it alone; the rest is for a busy machine
