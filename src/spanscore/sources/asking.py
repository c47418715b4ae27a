"""StoreClient: one question over HTTP, three tries of it, and an answer that was read as a whole."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from spanscore.core.codecs.text import retry_after_s
from spanscore.core.log import type_name
from spanscore.errors import ConfigurationError

__all__ = ["NotThere", "StoreClient", "Unanswered"]

T = TypeVar("T")

_TRIES: Final = 3
_WAIT_S: Final = 1.0
"""Before the second try, where the store does not say how long; twice that before the third."""
_LONGEST_WAIT_S: Final = 60.0
_TIMEOUT_S: Final = 60.0
_OVERLOADED: Final = 429
_NOT_FOUND: Final = 404
_SERVER: Final = 500


class Unanswered(Exception):
    """A store gave no usable answer, three times. The text says why, without content."""


class NotThere(Unanswered):
    """It says that it does not have what was asked for."""


class StoreClient:
    """Asks one store. Blocks.

    Args:
        url: of the store, without a path to its API.
        sleep: waits between tries, in seconds.
        timeout_s: for one answer.

    Raises:
        ConfigurationError: the address is none.
    """

    def __init__(self, url: str, *, sleep: Callable[[float], None] = time.sleep, timeout_s: float = _TIMEOUT_S) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.username or parts.password:
            raise ConfigurationError("the address of a store holds a name or a password, which is not asked with")
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigurationError(f"{url!r} is no address of a store; write for example http://localhost:16686")
        self.url = url.rstrip("/")
        self._sleep = sleep
        self._timeout_s = timeout_s

    def ask(self, path: str, given: Mapping[str, str], read: Callable[[Any], T]) -> T:
        """Return what ``read`` makes of the JSON of an answer.

        Args:
            path: below the address.
            given: parameters.
            read: raises ``AttributeError``, ``KeyError``, ``TypeError`` or ``ValueError`` where it is not what was asked for.

        Raises:
            NotThere: the answer is 404.
            Unanswered: it is another error, or none, or half of one, three times.
            ConfigurationError: the store refuses; asking again would not help.
        """
        asked = f"{self.url}{path}?{urllib.parse.urlencode(given)}" if given else f"{self.url}{path}"
        request = urllib.request.Request(asked, headers={"Accept": "application/json"})
        for left in reversed(range(_TRIES)):
            wait_s = _WAIT_S * 2 ** (_TRIES - 1 - left)
            try:
                with urllib.request.urlopen(request, timeout=self._timeout_s) as response:
                    return read(json.loads(response.read()))
            except urllib.error.HTTPError as error:
                because = self._refused(error)
                told_s = retry_after_s(error.headers.get("Retry-After", ""))
                wait_s = wait_s if told_s is None else min(told_s, _LONGEST_WAIT_S)
            except (AttributeError, KeyError, TypeError, ValueError, RecursionError):  # half a body is no JSON
                because = "what it answers is not what was asked for, or not all of it"
            except (OSError, http.client.HTTPException) as error:
                because = f"no whole answer ({_why(error)})"
            if left:
                self._sleep(wait_s)
        raise Unanswered(because)

    def _refused(self, error: urllib.error.HTTPError) -> str:
        """Return why an answer is worth another try."""
        told = f"it answers {error.code} {error.reason}"
        if error.code == _NOT_FOUND:
            raise NotThere(told) from None
        if error.code < _SERVER and error.code != _OVERLOADED:
            raise ConfigurationError(f"{self.url}: {told}") from None
        return told


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(reason) if reason is not None else type_name(error)
