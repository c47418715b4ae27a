"""The applications of ``tests/applications`` under other instrumentations: the samples are equal, except for listed
differences.

Each request runs once, under both (``beside``). A difference without a row fails, and a row without a difference.
OpenTelemetry's own instrumentation is left out: it writes no span for a model without a name, and these models have no name.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

LEAST = 228
"""Smallest number of tests with compared requests."""
NO_IDS = ["retrieved_context_ids"]
"""OpenLLMetry writes the texts of documents alone."""
NO_HISTORY = ["no conversation"]
"""Messages from a store or a checkpoint differ from a prompt's own messages by the store's run, or by their ids."""
REPLACED = "test_message_replaced_under_its_id.py"
STORES: Mapping[str, list[str]] = {
    "test_chat_bots.py::test_a_history_that_is_stored_is_the_conversation_too": NO_HISTORY,
    "test_chat_bots.py::test_the_turns_that_the_store_kept_are_the_users[alone]": NO_HISTORY,
    "test_chat_bots.py::test_the_turns_that_the_store_kept_are_the_users[beside examples]": NO_HISTORY,
}
DIFFERENCES: Mapping[str, Mapping[str, list[str]]] = {
    "openinference": {
        **STORES,
        # The runs of a chain with fallbacks are traces of their own.
        "test_refused_and_retried.py::test_the_chain_that_stands_in_for_another_is_asked_the_same": ["3 units, not 1"],
        # An input of one text is written without its key, so it cannot be distinguished from a replacement.
        "test_rewritten_in_place.py::test_a_query_that_was_rewritten_is_no_part_of_the_answer": ["response"],
        **{
            f"{REPLACED}::test_the_judge_is_shown_what_the_models_were[{way}-Write to bob@example.com please.]": [
                "user_input"
            ]
            for way in ("nested", "redacting")
        },
    },
    "openllmetry": {
        **STORES,
        # A message that came as (role, text) has no id, and steps are not read.
        f"{REPLACED}::test_a_query_that_a_node_rewrote_is_the_question": ["user_input"],
        **{
            f"test_human_in_the_loop.py::test_after_a_summary_took_the_place_of_the_question_it_is_the_users[{keep}]": [
                "conversation",
                "user_input",
            ]
            for keep in (1, 2)
        },
        "test_chat_bots.py::test_each_turn_is_judged_by_its_own_words": NO_HISTORY,
        "test_chat_bots.py::test_the_turns_that_the_checkpoint_kept_are_the_users": NO_HISTORY,
        "test_cited.py::test_the_text_that_is_a_field_of_what_the_model_said_is_the_answer": NO_IDS,
        "test_retrievers.py::test_what_was_found_is_the_context_and_not_what_was_invented": NO_IDS,
        "test_itemgetters.py::test_the_question_is_distinguished_from_its_language": NO_IDS,
        "test_retrievers.py::test_the_question_is_the_users_and_not_the_query_that_was_made_of_it": NO_IDS,
        "test_state_schemas.py::test_documents_of_a_private_state_are_the_contexts": NO_IDS,
    },
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("way", DIFFERENCES)
def test_each_application_gives_what_it_gives_under_our_own_capture(way: str, tmp_path: Path) -> None:
    out = tmp_path / "differences.json"
    beside = ("-p", "tests.entry_points.beside", "--beside", way, "--beside-out", str(out))
    command = [sys.executable, "-W", "ignore", "-m", "pytest", "tests/applications", "-q", "-p", "no:xdist", *beside]

    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=580, cwd=Path(__file__).parents[2], check=False
    )

    assert ran.returncode == 0, ran.stdout[-2_000:] + ran.stderr[-2_000:]
    found = json.loads(out.read_text(encoding="utf-8"))
    assert len(found) >= LEAST
    assert {test: sorted(set(differs)) for test, differs in found.items() if differs} == DIFFERENCES[way]
