"""The public surface is exactly ``spanscore.__all__``, and all of it is documented."""

from __future__ import annotations

import inspect

import pytest

import spanscore

NAMES = sorted(spanscore.__all__)


def test_dir_shows_the_public_names() -> None:
    assert set(NAMES) <= set(dir(spanscore))


@pytest.mark.parametrize("name", NAMES)
def test_public_name_loads_and_is_documented(name: str) -> None:
    thing = getattr(spanscore, name)

    assert isinstance(thing, str) or inspect.getdoc(thing)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        spanscore.no_such_name  # noqa: B018
