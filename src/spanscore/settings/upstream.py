"""Which share of the traffic a head sampler keeps, for units whose ``tracestate`` does not state it (``ot=th``)."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator

from spanscore.errors import ConfigurationError
from spanscore.settings.kinds import SettingsPart, Share, share_in

__all__ = ["Upstream", "UpstreamShares", "upstream_in", "upstream_shares"]


class UpstreamSettings(SettingsPart):
    """Head samplers that keep another share for each service, and write no ``ot=th``.

    Attributes:
        by_service: ``service.name`` of the unit's resource → share of its traffic that comes here, (0, 1]; 1 states that
            no head sampler drops any.
        default: share of every other service, (0, 1].
    """

    by_service: dict[str, Share] = {}  # noqa: RUF012  (pydantic copies it)
    default: Share = 1.0


class UpstreamShares(NamedTuple):
    """Shares of the traffic that reach this process.

    Attributes:
        by_service: ``service.name`` → share, (0, 1].
        default: share of every service that ``by_service`` does not name, (0, 1].
    """

    by_service: Mapping[str, float]
    default: float


def upstream_shares(given: Any) -> UpstreamShares:
    """Return the shares of ``sampling.head_sampling_rate``, checked.

    Args:
        given: one share, (0, 1], for all services; or a mapping with ``by_service`` and ``default``, each optional.

    Raises:
        ConfigurationError: a share is outside (0, 1], or the mapping has another key.
    """
    try:
        return _shares(given)
    except ValueError as error:
        raise ConfigurationError(f"sampling.head_sampling_rate{error}") from None


def upstream_in(given: float | UpstreamSettings) -> float | dict[str, Any]:
    """Return the option of a scorer for the value of a configuration file."""
    return given.model_dump() if isinstance(given, UpstreamSettings) else given


def _shares(given: Any) -> UpstreamShares:
    if not isinstance(given, Mapping):
        return UpstreamShares({}, _share("", given))
    services, default = given.get("by_service", {}), given.get("default", 1.0)
    if unknown := sorted(map(str, given.keys() - UpstreamSettings.model_fields.keys())):
        raise ValueError(f" has {unknown[0]!r}; write {{by_service: {{{unknown[0]}: 0.1}}, default: 1}}")
    if not isinstance(services, Mapping):
        raise ValueError(  # noqa: TRY004  (pydantic reports this one alone)
            f".by_service is {services!r}; write {{by_service: {{NAME: 0.1}}, default: 1}}"
        )
    by_service = {str(name): _share(f".by_service.{name}", share) for name, share in services.items()}
    return UpstreamShares(by_service, _share(".default", default))


def _share(place: str, value: Any) -> float:
    try:
        share = nan if isinstance(value, bool) else float(share_in(value))
    except (TypeError, ValueError):
        share = nan
    if not 0.0 < share <= 1.0:  # nor if it is no number
        raise ValueError(f"{place} is {value!r}; allowed is above 0, up to 1")
    return share


def _in_file(value: Any) -> float | UpstreamSettings:
    if isinstance(value, UpstreamSettings):
        return value
    try:
        shares = _shares(value)
    except ValueError as error:
        raise ValueError(str(error).lstrip(" .")) from None
    return UpstreamSettings(**shares._asdict()) if isinstance(value, Mapping) else shares.default


Upstream = Annotated[Share | UpstreamSettings, BeforeValidator(_in_file)]
"""A share, or shares by service, in a configuration file."""
