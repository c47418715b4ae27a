"""A user's chat model or embeddings → a copy that is ours to ask: without retries of its own, bounded in time and size.

The user's object is never changed, and neither are its clients: the application asks through them. What is verified, in the
integrations' source:

    its client is made by Stainless: a copy with other options   ChatOpenAI, AzureChatOpenAI, their embeddings and all that are
                                                                 built on them; ChatAnthropic; ChatGroq
    its client is an HTTP client, or holds one                   ChatMistralAI; ChatOllama
    ``max_retries`` is read at call time                         ChatGoogleGenerativeAI, ChatMistralAI, CohereEmbeddings
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from itertools import chain
from typing import Any, NamedTuple

from spanscore.core.log import module_of, type_name
from spanscore.judges.langchain.connections import own_connections
from spanscore.judges.langchain.transport import GuardedTransport

__all__ = ["OwnClient", "own_client"]

_MAX_REDIRECTS = 3
_CLIENTS = ("root_client", "client", "_client")
_TIMEOUTS = ("request_timeout", "default_request_timeout", "timeout")
_PARTS, _LISTS = ("bound", "first", "last", "runnable", "default"), ("middle", "fallbacks")
"""Of LangChain's bindings, sequences, runnables with fallbacks, and configurable ones: where the models are."""
_ATTEMPTS_AT_CALL_TIME = frozenset({"langchain_google_genai", "langchain_mistralai", "langchain_cohere"})
"""What they call ``max_retries`` is a number of attempts: 1 is none but the first (Google's documentation says so, too)."""


class OwnClient(NamedTuple):
    """A copy that is ours to ask.

    Attributes:
        model: the chat model or the embeddings.
        attempts: requests that one call of it may be.
        notes: what could not be had, a sentence each.
    """

    model: Any
    attempts: int = 1
    notes: tuple[str, ...] = ()


def own_client(model: Any, timeout_s: float) -> OwnClient:
    """Return a copy of a chat model or embeddings; the object itself, where it has no client that is known.

    Args:
        timeout_s: of one attempt.
    """
    if (made_of_others := _composed(model, timeout_s)) is not None:
        return made_of_others
    try:
        mine, switched_off = _copied(model, timeout_s)
    except Exception:  # noqa: BLE001  (a client of its own kind: any of the calls above may be one it does not know)
        mine, switched_off = model, False
    retries = getattr(model, "max_retries", None)
    if switched_off or not isinstance(retries, int) or retries < 1:
        return OwnClient(mine)
    note = f"the own retries of {type_name(model)} could not be switched off: an attempt may be {retries + 1} requests"
    return OwnClient(mine, retries + 1, (note,))


def _composed(model: Any, timeout_s: float) -> OwnClient | None:
    """Return a copy of a runnable that is made of others, and of these; None of one that is not."""
    has: Mapping[str, Any] = getattr(model, "__dict__", {})
    single = {name: own_client(has[name], timeout_s) for name in _PARTS if hasattr(has.get(name), "ainvoke")}
    if not single:
        return None
    lists = {name: [own_client(one, timeout_s) for one in has[name]] for name in _LISTS if name in has}
    copies = {name: own.model for name, own in single.items()}
    copies |= {name: [own.model for own in several] for name, several in lists.items()}
    return _together(model.model_copy(update=copies), [*single.values(), *chain.from_iterable(lists.values())])


def _together(model: Any, parts: Sequence[OwnClient]) -> OwnClient:
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    return OwnClient(model, max(part.attempts for part in parts), tuple(notes))


def _copied(model: Any, timeout_s: float) -> tuple[Any, bool]:
    """Return a copy with clients of its own, and whether its retries are off."""
    if not callable(getattr(model, "model_copy", None)):
        return model, False
    mine, made = model.model_copy(), dict[int, Any]()
    _set_first(mine, ("streaming",), False)  # an answer is read whole
    for name in _CLIENTS:
        theirs = getattr(mine, name, None)
        if theirs is not None and (own := _own(theirs, timeout_s, made)) is not None:
            setattr(mine, name, own)
    by_client = any(hasattr(own, "max_retries") for own in made.values())
    if not by_client and _library(model) not in _ATTEMPTS_AT_CALL_TIME:
        return mine, False
    _set_first(mine, ("max_retries",), 0 if by_client else 1)
    _set_first(mine, _TIMEOUTS, timeout_s)
    return mine, True


def _own(theirs: Any, timeout_s: float, made: dict[int, Any]) -> Any:
    """Return a client of our own for one of theirs, always the same one; None where it is of no known kind."""
    if id(theirs) not in made:
        made[id(theirs)] = _made(theirs, timeout_s, made)
    return made[id(theirs)]


def _made(theirs: Any, timeout_s: float, made: dict[int, Any]) -> Any:
    if _is_http(theirs):
        return _guarded(theirs)
    inside = getattr(theirs, "_client", None)
    if _is_http(inside) and callable(getattr(theirs, "with_options", None)):
        return theirs.with_options(max_retries=0, timeout=timeout_s, http_client=_guarded(inside))
    own = None if inside is None else _own(inside, timeout_s, made)
    if own is None:
        return None
    if hasattr(theirs, "_post"):  # a resource of a client, such as its ``chat.completions``
        return type(theirs)(own)
    mine = copy(theirs)
    mine._client = own
    return mine


def _is_http(client: Any) -> bool:
    """Whether it is a client of httpx or httpx2: by what it has, as either may be loaded, or both."""
    return {"_transport", "_mounts"} <= getattr(client, "__dict__", {}).keys()


def _guarded(theirs: Any) -> Any:
    """Return an HTTP client with all that is set on theirs, cookies and hooks too, and our transports around its own."""
    mine = copy(theirs)
    mine.max_redirects = min(mine.max_redirects, _MAX_REDIRECTS)
    mine._transport = _around(theirs._transport)
    mine._mounts = {pattern: transport and _around(transport) for pattern, transport in theirs._mounts.items()}
    return mine


def _around(transport: Any) -> GuardedTransport:
    own = own_connections(transport)
    return GuardedTransport(own, is_ours=own is not transport)


def _library(model: Any) -> str:
    return module_of(type(model)).partition(".")[0]


def _set_first(model: Any, names: tuple[str, ...], value: Any) -> None:
    """Set the first of these fields that a model has."""
    for name in names:
        if name in type(model).model_fields:
            setattr(model, name, value)
            return
