"""Foreign things are looked at, and nothing of theirs runs: no metaclass, no ``__class__``, no ``__str__``."""

from pathlib import Path

import pytest

from spanscore.core.log import bases_of, class_name, defines, error_text, is_a, module_of, type_name


def a_secret():
    """Return an object that answers no question, of a class that answers none (local: pytest would ask them)."""

    class Exits(type):
        def __getattribute__(cls, name):
            raise SystemExit(name)

    class Secret(metaclass=Exits):
        def __getattribute__(self, name):
            raise SystemExit(name)

    return Secret()


class TextError(ValueError):
    """An application's error without a text of its own."""


class Asked(ValueError):
    """An error of an application that prints itself."""

    def __str__(self):
        raise SystemExit(1)


def test_a_class_is_named_without_asking_its_metaclass():
    secret = a_secret()
    kind = type(secret)

    assert (type_name(secret), class_name(kind), module_of(kind)) == ("Secret", "Secret", __name__)
    assert (len(bases_of(kind)), bases_of(kind)[1]) == (2, object)
    assert not defines(kind, "__dataclass_fields__")


def test_an_instance_is_reported_by_its_type_and_not_asked():
    assert not is_a(a_secret(), str, dict)
    assert is_a(True, int)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TextError("no such ship"), "no such ship"),
        (TextError("no ship", 7), "('no ship', 7)"),
        (KeyError("ship"), "'ship'"),
        (OSError(2, "No such file", "ships.txt"), "[Errno 2] No such file: 'ships.txt'"),
        (ModuleNotFoundError("No module named 'ships'"), "No module named 'ships'"),
        (TextError(), ""),
    ],
)
def test_a_plain_error_says_what_it_says(error, text):
    assert error_text(error) == str(error) == text


@pytest.mark.parametrize("kind", [TextError, KeyError, ImportError, OSError])
def test_an_error_whose_text_would_have_to_be_asked_for_says_nothing(kind):
    assert error_text(Asked("x")) is None
    assert error_text(kind(a_secret())) is None
    assert error_text(OSError(2, "?", Path("x"))) is None
