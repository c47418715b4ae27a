"""By what the sums are told apart so that two releases can be compared on live traffic."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator

from spanscore import semconv
from spanscore.settings.kinds import SettingsPart

__all__ = ["Compare"]


def _check_attribute(name: str) -> str:
    if not name.strip():
        raise ValueError(f"{name!r} is no name; write what differs: 'service.version'")
    if semconv.is_content(name):
        raise ValueError(f"{name!r} quotes what users write, and would be a label")
    return name


class Compare(SettingsPart):
    """Two releases on live traffic: the sums are kept per value of what tells them apart, for ``spanscore compare``.

    Attributes:
        by: attribute of the resource (``service.version``), key of the run's metadata, attribute of the unit's root
            (``gen_ai.prompt.version``), ``gen_ai.request.model``, or ``spanscore.evaluator.version``. The first eight values
            that come are told apart; any other is ``other``, none at all ``unknown``. They leave as a label: of metadata and
            attributes by way of the redactor.
    """

    section: ClassVar[str] = "compare"
    by: Annotated[str, AfterValidator(_check_attribute)]
