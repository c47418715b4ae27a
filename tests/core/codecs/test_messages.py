"""Messages of a conversation: their speaker, and messages made by a middleware."""

import pytest

from spanscore.core.codecs.messages import SYSTEM, TOOL, USER, sample_messages, text_message


@pytest.mark.parametrize(("role", "said"), [(USER, []), (SYSTEM, []), (TOOL, ["Never delete."])])
def test_what_a_middleware_made_is_said_by_nobody_but_answers_a_call(role: str, said: list[str]) -> None:
    message = {**text_message(role, "Never delete."), "lc_source": "hitl_interrupt_decision"}

    assert [one.content for one in sample_messages([message])] == said
