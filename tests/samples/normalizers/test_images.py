"""Images on the spans of other instrumentations are images of the sample."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from tests.samples.normalizers.spans import external, samples_of

from spanscore.core.sample import Image, SingleTurnSample

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(90)).decode()
URI = f"data:image/png;base64,{PNG}"
BLOCKS = "llm.input_messages.0.message.contents"
SPANS: dict[str, dict[str, Any]] = {
    "openinference": {
        "openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "user",
        f"{BLOCKS}.0.message_content.type": "text",
        f"{BLOCKS}.0.message_content.text": "What is it?",
        f"{BLOCKS}.1.message_content.type": "image",
        f"{BLOCKS}.1.message_content.image.image.url": URI,
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "A cat.",
    },
    "the conventions": {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": json.dumps(
            [
                {
                    "role": "user",
                    "parts": [
                        {"type": "text", "content": "What is it?"},
                        {"type": "blob", "modality": "image", "mime_type": "image/png", "content": PNG},
                    ],
                }
            ]
        ),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "A cat."}]}]),
    },
    "vercel": {
        "operation.name": "ai.generateText.doGenerate",
        "ai.operationId": "ai.generateText.doGenerate",
        "ai.prompt.messages": json.dumps(
            [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, {"type": "image", "image": URI}]}]
        ),
        "ai.response.text": "A cat.",
    },
}


@pytest.mark.parametrize("instrumentation", SPANS)
def test_an_image_on_a_span_is_an_image_of_the_sample(instrumentation: str) -> None:
    scope = "ai" if instrumentation == "vercel" else "x"

    made = samples_of(external(SPANS[instrumentation], scope)).single_turn

    image = Image(base64=PNG, media_type="image/png")
    assert made == SingleTurnSample(user_input="What is it?\n[image 1]", response="A cat.", images=[image])
