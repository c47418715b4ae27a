"""The decorator ``@metric``, which makes a function a metric."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, overload

from spanscore.core.score import BINARY, UNIT_INTERVAL, Scale, categorical
from spanscore.errors import ConfigurationError
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
        categories: Sequence[str] | None,
        bad: Sequence[str],
    ) -> None:
        self.__doc__ = function.__doc__
        self._function = function
        name = name or function.__name__
        _check_parameters(name, function)
        self.scale = _scale_of(name, function, scale, categories, bad)
        super().__init__(name=name, pass_at=pass_at)
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


def _check_parameters(name: str, function: Callable[[Any], Any]) -> None:
    """Make sure that a function can be called with a sample, because otherwise each score would be a ``metric_error``."""
    try:
        with suppress(ValueError):  # a function in C may have no signature
            inspect.signature(function).bind(None)
    except TypeError as error:
        raise ConfigurationError(f"{name} is called with a sample: write def {name}(sample) ({error})") from None


def _scale_of(
    name: str,
    function: Callable[[Any], Any],
    scale: Scale | None,
    categories: Sequence[str] | None,
    bad: Sequence[str],
) -> Scale:
    if categories is not None or bad:
        if scale is not None:
            raise ConfigurationError(f"{name}: scale and categories are both given; give one of them")
        return categorical(name, () if categories is None else categories, bad)
    returned = getattr(function, "__annotations__", {}).get("return")
    if _returns_text(returned) and (scale is None or not scale.categories):
        raise ConfigurationError(
            f"{name} returns a text: write @metric(categories=['refund', 'other']) with its words, or return a number, a "
            "bool, None, a Finding or a Score"
        )
    return scale or (BINARY if returned in (bool, "bool") else UNIT_INTERVAL)


_TEXT_LITERAL = re.compile(r"""Literal\[["']""")


def _returns_text(returned: Any) -> bool:
    """Whether a return annotation contains a text. Under ``from __future__ import annotations`` an annotation is a string."""
    if isinstance(returned, str):
        return any(part == "str" or _TEXT_LITERAL.match(part) for part in map(str.strip, returned.split("|")))
    kind, arguments = get_origin(returned), get_args(returned)
    if kind is Literal:
        return any(isinstance(word, str) for word in arguments)
    return returned is str or (kind in (Union, UnionType) and any(map(_returns_text, arguments)))


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
    categories: Sequence[str] | None = None,
    bad: Sequence[str] = (),
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
    categories: Sequence[str] | None = None,
    bad: Sequence[str] = (),
) -> Any:
    """Make a function of a sample a metric.

    The function returns a number, a bool, a category, a Finding, a Score, or None (outcome ``no_value``).

    Args:
        name: name of the metric in its scores; None: the name of the function.
        requires: fields of a single-turn sample; or ``{"single_turn": […], "multi_turn": […]}``. The function is not called
            for a sample of another kind, or without these fields.
        scale: scale of the values. None = pass or fail for a function annotated ``-> bool``, else [0, 1] with higher better.
        pass_at: lowest quality that passes; None: the scale's own.
        version: raise it when the function changes. The source text is not part of the version, because a new comment would
            then start a new evaluator version.
        cpu_bound: whether the function computes or blocks, so that it must not run on the loop. None: True unless it is async.
        categories: the words that the function returns, 2 to 50, as in ``Scale``; needed by a function that returns a text.
            None: the function returns no text.
        bad: categories with quality 0; the others have 1. Empty: the categories have no quality, and no pass or fail.

    Raises:
        ConfigurationError: the function cannot be called with a sample alone, the function is annotated to return a text and
            has no categories, or the categories are invalid.

    Example:
        >>> @metric(requires=["response"])
        ... def brief(sample) -> bool:
        ...     return len(sample.response) < 400
        >>> brief.name, brief.scale.kind
        ('brief', 'binary')
        >>> @metric(categories=["greeting", "other"])
        ... def opening(sample) -> str:
        ...     return "greeting" if sample.user_input.startswith("Hello") else "other"
        >>> opening.scale.categories
        ('greeting', 'other')
    """
    made = partial(
        FunctionMetric,
        name=name,
        requires=requires,
        scale=scale,
        pass_at=pass_at,
        version=version,
        cpu_bound=cpu_bound,
        categories=categories,
        bad=bad,
    )
    return made if function is None else made(function)
