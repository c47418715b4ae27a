"""A copy of a frozen value is what ``dataclasses.replace`` makes of it."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, fields, replace
from typing import Any

import pytest
from tests.sinks.builders import score, unit

from spanscore.model.evolve import evolve
from spanscore.model.job import Decision
from spanscore.model.score import Outcome, Score, id_of, signed


@pytest.mark.parametrize(
    ("one", "changes"),
    [
        (score("style"), {"metric": "tone", "probability": 0.25, "id": "ab"}),
        (unit(), {"spans": ()}),
        (unit().spans[0], {"attributes": {"a": 1}, "events": ()}),
        (Decision(True, 0.5, 7), {"rule": "errors"}),
        (Decision(True, 0.5, 7), {}),
    ],
)
def test_it_is_what_replace_makes(one: Any, changes: dict[str, Any]) -> None:
    before = {field.name: getattr(one, field.name) for field in fields(one)}
    copy = evolve(one, **changes)

    assert type(copy) is type(one)
    assert copy == replace(one, **changes)
    assert repr(copy) == repr(replace(one, **changes))
    assert {field.name: getattr(one, field.name) for field in fields(one)} == before


def test_a_copy_is_as_frozen_as_what_it_was_made_of() -> None:
    copy = evolve(score("style"), reason="late")
    with pytest.raises(FrozenInstanceError):
        copy.reason = "later"  # type: ignore[misc]


def test_a_field_that_is_not_there_is_refused() -> None:
    with pytest.raises(AttributeError):
        evolve(score("style"), colour="red")


@dataclass(frozen=True)
class Marked(Score):
    """A score as a user may extend it: with a field, and a dictionary for it."""

    mark: str = "none"


def test_a_subclass_with_more_than_slots_keeps_what_it_has() -> None:
    one = Marked(metric="style", version="1", outcome=Outcome.SCORED, value=1.0, mark="red")
    copy = evolve(one, metric="tone")

    assert (type(copy), copy.mark, copy.metric) == (Marked, "red", "tone")


def test_a_signed_score_has_the_id_of_what_it_says() -> None:
    one, of = score("style"), unit()
    given = signed(one, of, metric="tone", revision=2)

    assert given == replace(one, metric="tone", revision=2, id=given.id)
    assert given.id == id_of(replace(one, metric="tone", revision=2), of)
    assert given.id != signed(one, of).id
