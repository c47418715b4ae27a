"""The decorator ``@metric``, which makes a function a metric."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, overload

from spanscore.core.score import BINARY, UNIT_INTERVAL, Scale
from spanscore.metrics.kit.base import SINGLE_TURN, Measured
from spanscore.metrics.kit.judged import NamedMetric


class FunctionMetric(NamedMetric):
    """A metric that ``@metric`` made of a function. Calling the metric calls the function."""

    def __init__(
        self,
        function: Callable[[Any], Any],
        *,
        name: str | None,
        requires: Mapping[str, Sequence[str]] | Sequence[str],
        scale: Scale | None,
        pass_at: float | None,
        version: str,
        cpu_bound: bool | None,
    ) -> None:
        self.__doc__ = function.__doc__
        self._function = function
        # A string under ``from __future__ import annotations``.
        is_binary = getattr(function, "__annotations__", {}).get("return") in (bool, "bool")
        self.scale = scale or (BINARY if is_binary else UNIT_INTERVAL)
        super().__init__(name=name or function.__name__, pass_at=pass_at)
        fields = [requires] if isinstance(requires, str) else requires
        kinds = fields if isinstance(fields, Mapping) else {SINGLE_TURN: fields}
        self.requires = {kind: tuple(names) for kind, names in kinds.items()}
        self.base_version = version
        self.cpu_bound = not inspect.iscoroutinefunction(function) if cpu_bound is None else cpu_bound

    def __call__(self, sample: Any) -> Any:
        """Call the function itself, without field check or outcome."""
        return self._function(sample)

    async def measure(self, sample: Any) -> Measured:
        """Call the function, and await the result of an async function."""
        result = self._function(sample)
        measured: Measured = await result if inspect.isawaitable(result) else result
        return measured


@overload
def metric(function: Callable[[Any], Any], /) -> FunctionMetric: ...
@overload
def metric(
    *,
    name: str | None = None,
    requires: Mapping[str, Sequence[str]] | Sequence[str] = (),
    scale: Scale | None = None,
    pass_at: float | None = None,
    version: str = "1",
    cpu_bound: bool | None = None,
) -> Callable[[Callable[[Any], Any]], FunctionMetric]: ...
def metric(
    function: Callable[[Any], Any] | None = None,
    /,
    *,
    name: str | None = None,
    requires: Mapping[str, Sequence[str]] | Sequence[str] = (),
    scale: Scale | None = None,
    pass_at: float | None = None,
    version: str = "1",
    cpu_bound: bool | None = None,
) -> Any:
    """Make a function ``sample → number, bool, None, Finding or Score`` a metric. None means that it has no value
    (``no_value``).

    Args:
        name: name of the metric in its scores; the name of the function when None.
        requires: fields of a single-turn sample; or ``{"single_turn": […], "multi_turn": […]}`` by kind. A sample of
            the other kind, or without the fields, never reaches the function.
        scale: scale of the values. None: pass or fail for a function annotated ``-> bool``, else [0, 1] with higher better.
        pass_at: lowest quality that passes; the scale's own when None.
        version: raise it when the function changes. The source text is not part of the version, because a new comment would
            then start a new evaluator version.
        cpu_bound: whether the function computes or blocks, so that it runs off the loop. None: True, but False if it is async.

    Example:
        >>> @metric(requires=["response"])
        ... def brief(sample) -> bool:
        ...     return len(sample.response) < 400
        >>> brief.name, brief.scale.kind
        ('brief', 'binary')
    """
    made = partial(
        FunctionMetric, name=name, requires=requires, scale=scale, pass_at=pass_at, version=version, cpu_bound=cpu_bound
    )
    return made if function is None else made(function)
