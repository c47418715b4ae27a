"""T and R of the OpenTelemetry sampling rule, 56 bit each. Pure.

Source: OpenTelemetry specification, ``trace/tracestate-probability-sampling.md``.
"""

from __future__ import annotations

from typing import Final

__all__ = ["decode_threshold", "probability", "randomness_of_trace", "thinned", "threshold", "upstream_of"]

_SPACE: Final = 1 << 56
_HEX_DIGITS: Final = 14


def threshold(rate: float) -> int:
    """Return T for a rate in (0, 1]; 2**56, which no R reaches, for 0 alone."""
    return _SPACE - max(round(rate * _SPACE), rate > 0)


def probability(t: int) -> float:
    """Return the probability with which R ≥ T."""
    return (_SPACE - t) / _SPACE


def decode_threshold(text: str) -> int | None:
    """Return T from the value of ``th`` (zeros padded on the right); None when it is not one."""
    if not 1 <= len(text) <= _HEX_DIGITS:
        return None
    try:
        return int(text.ljust(_HEX_DIGITS, "0"), 16)
    except ValueError:
        return None


def thinned(t: int, upstream: int) -> int:
    """Return the threshold of the share ``t`` of what arrives through ``upstream``: probabilities multiply.

    Rounded so that no share of something becomes nothing, whose weight would be infinite.
    """
    return _SPACE - ((_SPACE - t) * (_SPACE - upstream) + _SPACE - 1) // _SPACE


def upstream_of(trace_state: str) -> int | None:
    """Return T of the sampler upstream; None where ``ot=th`` does not say that there was one."""
    return decode_threshold(_ot_fields(trace_state).get("th", ""))


def randomness_of_trace(trace_state: str, trace_id: int) -> int:
    """Return R of a trace: as ``ot=rv`` says, else as its id does."""
    rv = _ot_fields(trace_state).get("rv", "")
    explicit = decode_threshold(rv) if len(rv) == _HEX_DIGITS else None  # the same digits, but never fewer
    return trace_id % _SPACE if explicit is None else explicit


def _ot_fields(trace_state: str) -> dict[str, str]:
    for member in trace_state.split(","):
        vendor, _, value = member.strip().partition("=")
        if vendor == "ot":
            return dict(field.split(":", 1) for field in value.split(";") if ":" in field)
    return {}
