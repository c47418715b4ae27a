"""Crossed: several roots at once under one run id, as an application gives them that reuses ``config={"run_id": …}``.

LangChain's events name a run by its id alone. From the second such root on, each has an id of its own here, which stands in a
context variable: it is set where the root starts, and the context of its children and of its end is that or a copy of it. A
handler becomes ``Crossed`` with the first such root: until then no event pays for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

if TYPE_CHECKING:
    from spanscore.receivers.callback.handler import SpanCallbackHandler as Handler
    from spanscore.receivers.callback.runs import Root, Run
else:
    Handler = object

__all__ = ["Crossed", "begin_another"]

_ids: ContextVar[Mapping[tuple[int, int], int]] = ContextVar("spanscore_run_ids", default={})  # noqa: B039  (never changed)
"""Handler and run id → the id that the handler's root of this context has instead."""


def begin_another(handler: Any, run_id: int, *about: Any) -> Root | None:
    """Open a root whose run id a root has that runs, under an id of its own."""
    if not isinstance(handler, Crossed):
        kind = type(handler)
        handler.__class__ = type(
            kind.__name__, (Crossed, kind), {"__doc__": kind.__doc__, "__module__": kind.__module__}
        )
    own_id = uuid4().int
    _ids.set({**_ids.get(), (id(handler), run_id): own_id})
    root: Root | None = handler._begin(own_id, *about, run_id)
    return root


class Crossed(Handler):
    """Leads each event to the root of its context."""

    def id_here(self, run_id: UUID) -> int:
        """Return the id under which a run is remembered that has this id in the current context."""
        return self._id_of(run_id.int)

    def _id_of(self, run_id: int) -> int:
        own_id = _ids.get().get((id(self), run_id))
        return own_id if own_id is not None and own_id in self._runs else run_id

    def _uuid_of(self, run_id: UUID | None) -> UUID | None:
        return None if run_id is None else UUID(int=self._id_of(run_id.int))

    def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        """Open a root, or remember a step."""
        super().on_chain_start(serialized, inputs, run_id=run_id, parent_run_id=self._uuid_of(parent_run_id), **kwargs)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """End a root; a stream's true input arrives only here."""
        super().on_chain_end(outputs, run_id=UUID(int=self._id_of(run_id.int)), **kwargs)

    def on_llm_new_token(self, token: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Note when the first chunk came."""
        super().on_llm_new_token(token, run_id=UUID(int=self._id_of(run_id.int)), **kwargs)

    def _open(self, run_id: int, parent_run_id: UUID | None, *about: Any) -> Run | None:
        return super()._open(run_id, self._uuid_of(parent_run_id), *about)

    def _begin(self, run_id: int, *about: Any) -> Root | None:
        ids, here = _ids.get(), (id(self), run_id)
        if here in ids:
            root = self._roots.get(ids[here])
            if root is not None and root.is_start(about[2], about[4]):
                return None
            _ids.set({of: own_id for of, own_id in ids.items() if of != here})
        return super()._begin(run_id, *about)

    def _end(self, run_id: int, *what: Any) -> None:
        super()._end(self._id_of(run_id), *what)

    def _fail(self, run_id: int, *what: Any) -> None:
        super()._fail(self._id_of(run_id), *what)
