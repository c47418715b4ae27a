"""A seed → the requests of a demo: who asks what, in which stretch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["LEAST_REQUESTS", "STRETCHES", "Request", "Stretch", "requests", "stretch_of"]

Stretch = Literal["before", "during", "after"]
STRETCHES: tuple[Stretch, ...] = ("before", "during", "after")
LEAST_REQUESTS = 12
_BREAKS_AT, _MENDED_AT = 0.4, 0.65
"""Shares of all requests: retrieval is broken in between."""
_CHAIN_RUNS = 4
"""Runs of the chain between two conversations with the agent, which are of two turns each."""

_QUESTIONS = (
    "What does a single adult ticket cost?",
    "How long is a return ticket valid?",
    "What does the season ticket cost?",
    "What does a bicycle cost per crossing?",
    "How many places for bicycles does each ferry have?",
    "Where do dogs travel?",
    "On which day are horses taken on the Marigold?",
    "What does a car up to five metres cost?",
    "How many cars does the car deck of the Marigold hold?",
    "When does the first ferry from Port Maddern to Skerrow leave?",
    "When does the last ferry to Skerrow leave?",
    "How long does the crossing to Tarn Holm take?",
    "When are crossings cancelled because of wind?",
    "When is a cancelled ticket refunded in full?",
    "How many suitcases may each passenger bring?",
    "For how many days is lost property kept?",
    "What do lockers at Port Maddern cost?",
    "Who travels with wheelchair users for the price of a child?",
    "How many hours ahead is help with boarding booked?",
    "Where was the Marigold built?",
    "Who is the captain of the Marigold?",
    "What does the fish soup cost in the galley?",
    "Until when are hot meals served?",
    "What does the car park at Port Maddern cost per day?",
    "For how many minutes is parking free?",
    "What discount do groups of twelve or more get?",
    "What do school classes pay per pupil?",
)
_OFF_SUBJECT = (
    "Which shares should I buy?",
    "Who won the football cup?",
    "What is the best pancake recipe?",
    "Who will win the election?",
)
_STRAYING = 0.4
"""Share of second turns that leave the agent's subject."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        number: from 1.
        thread: the conversation with the agent it belongs to; None for a run of the chain.
    """

    number: int
    stretch: Stretch
    question: str
    thread: str | None = None


def requests(count: int, seed: int) -> Iterator[Request]:
    """Yield the requests of a demo in order: the same for the same count and seed."""
    dice = random.Random(seed)
    cycle = _CHAIN_RUNS + 2
    for number in range(1, count + 1):
        place = (number - 1) % cycle
        straying = place == cycle - 1 and dice.random() < _STRAYING
        question = dice.choice(_OFF_SUBJECT if straying else _QUESTIONS)
        thread = None if place < _CHAIN_RUNS else f"conversation-{(number - 1) // cycle + 1}"
        yield Request(number, stretch_of(number, count), question, thread)


def stretch_of(number: int, count: int) -> Stretch:
    """Return the stretch of request ``number`` (from 1) of ``count``."""
    share = (number - 1) / count
    return "before" if share < _BREAKS_AT else "during" if share < _MENDED_AT else "after"
