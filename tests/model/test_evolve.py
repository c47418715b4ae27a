"""A copy of a frozen value is what ``dataclasses.replace`` makes of it."""

from __future__ import annotations

import pickle
from copy import deepcopy
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from inspect import signature
from typing import Any

import pytest
from tests.sinks.builders import score, unit

from spanscore.model.evolve import constructor, evolve, quickly_made
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


@quickly_made
@dataclass(frozen=True, slots=True)
class Made:
    """One with all that a dataclass may have."""

    first: int
    second: list[int] = field(default_factory=list)
    third: str = field(default="c", kw_only=True)
    fourth: int = field(init=False, default=4, compare=False)

    def __post_init__(self) -> None:
        if self.first < 0:
            raise ValueError(f"{self!r} is less than nothing")


@dataclass(frozen=True, slots=True)
class MadeLonger(Made):
    """One with a base."""

    fifth: int = 5


def test_what_is_made_quickly_is_what_a_dataclass_makes() -> None:
    one, other = Made(1), Made(first=1, second=[2], third="d")

    assert repr(one) == "Made(first=1, second=[], third='c', fourth=4)"
    assert repr(other) == "Made(first=1, second=[2], third='d', fourth=4)"
    assert one.second is not Made(1).second
    assert type(one) is Made
    assert one == pickle.loads(pickle.dumps(one)) == deepcopy(one) == replace(one, third="c") == evolve(one)
    assert str(signature(Made)).startswith("(first: 'int', second: 'list[int]' = ")
    with pytest.raises(FrozenInstanceError):
        one.first = 2  # type: ignore[misc]


def test_what_is_made_quickly_is_looked_at_and_its_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="first=-1"):
        Made(-1)
    with pytest.raises(TypeError, match=r"Made.__init__\(\) missing 1 required positional argument: 'first'"):
        Made()  # type: ignore[call-arg]


def test_a_constructor_makes_what_the_class_makes() -> None:
    quick = constructor(Made)

    for one, as_ever in ((quick(1), Made(1)), (quick(1, second=[2], third="d"), Made(1, [2], third="d"))):
        assert (type(one), repr(one), one) == (Made, repr(as_ever), as_ever)
    assert quick(1).second is not quick(1).second
    with pytest.raises(FrozenInstanceError):
        quick(1).first = 2  # type: ignore[misc]
    with pytest.raises(ValueError, match="first=-1"):
        quick(-1)
    with pytest.raises(TypeError, match=r"made\(\) missing 1 required positional argument: 'first'"):
        quick()  # type: ignore[call-arg]


def test_a_subclass_of_what_is_made_quickly_is_made_as_ever() -> None:
    assert repr(MadeLonger(1, [3])) == "MadeLonger(first=1, second=[3], third='c', fourth=4, fifth=5)"
    with pytest.raises(TypeError, match="MadeLonger is no dataclass with slots of its own alone"):
        quickly_made(MadeLonger)
