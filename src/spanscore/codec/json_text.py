"""JSON text from a file → a value; every fault is one kind of error."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["json_in"]


def json_in(text: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        json.JSONDecodeError: it is no JSON, or is nested deeper than Python reads; its ``msg`` says which, and quotes nothing.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise json.JSONDecodeError("nested too deep", "", 0) from None
    except json.JSONDecodeError:
        raise
    except ValueError as error:  # a number of too many digits
        raise json.JSONDecodeError("a number is too long", "", 0) from error
