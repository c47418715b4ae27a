"""A gate in your test suite: answers that got worse fail the build, and the worst of them are shown.

    pytest examples/test_quality.py

No key, no network: the offline judge compares words. With a key, name a judge that understands them:
Faithfulness("openai:gpt-4o-mini").
"""

from spanscore.metrics import AspectCritic, Faithfulness
from spanscore.testing import assert_quality


def answer(question: str) -> dict[str, object]:
    """Your application: the retrieved contexts and the answer."""
    facts = {"Oslo": "The ferry to Oslo sails at nine.", "Kiel": "The ferry to Kiel sails at noon."}
    found = next(fact for place, fact in facts.items() if place in question)
    return {"user_input": question, "retrieved_contexts": [found], "response": found}


def test_answers_are_backed_by_what_was_retrieved_and_insult_nobody() -> None:
    """Fails if a mean is lower, and shows the worst cases."""
    samples = [answer(question) for question in ("When does the ferry to Oslo sail?", "And the one to Kiel?")]

    assert_quality(
        samples,
        [Faithfulness("lexical"), AspectCritic("lexical", name="polite", definition="The response is polite.")],
        least={"faithfulness": 0.9, "polite": 1.0},
    )
