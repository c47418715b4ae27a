"""A joined conversation has the images of its turns, each with one number."""

from __future__ import annotations

from tests.pipeline.conversations import said_in, table, taken, turn

from spanscore.core.sample import AIMessage, HumanMessage, Image, MultiTurnSample, Samples, SingleTurnSample

CAT, DOG = (Image(url=f"https://example.org/{name}.png") for name in ("cat", "dog"))


def asked(text: str, answer: str, *images: Image) -> Samples:
    return Samples.of(SingleTurnSample(user_input=text, response=answer, images=list(images) or None))


def test_turns_are_joined_with_their_images_under_new_numbers() -> None:
    turns = [
        turn(1, asked("What is [image 1]?", "A cat.", CAT)),
        turn(2, asked("And [image 1] as [image 2]?", "A dog.", DOG, CAT)),
    ]
    sessions = table()

    (ended,) = [*taken(sessions, *turns), *sessions.close_all()]

    assert said_in(ended) == ["What is [image 1]?", "A cat.", "And [image 2] as [image 1]?", "A dog."]
    assert ended.samples.multi_turn.images == [CAT, DOG]


def test_a_history_with_the_same_image_replaces_the_earlier_turn() -> None:
    messages = [
        HumanMessage(content="What is [image 2]?"),
        AIMessage(content="A cat."),
        HumanMessage(content="And [image 1]?"),
        AIMessage(content="A dog."),
    ]
    whole = Samples.of(MultiTurnSample(user_input=messages, images=[DOG, CAT]))
    sessions = table()

    (ended,) = [
        *taken(sessions, turn(1, asked("What is [image 1]?", "A cat.", CAT)), turn(2, whole)),
        *sessions.close_all(),
    ]

    assert said_in(ended) == ["What is [image 1]?", "A cat.", "And [image 2]?", "A dog."]
    assert ended.samples.multi_turn.images == [CAT, DOG]
