"""Labels of one metric → how old they are, how far their annotators agree, and how often one of them is wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import typer

from spanscore.config.kinds import share_in
from spanscore.core.sample import Annotation
from spanscore.monitoring.calibration import KNOWN_ERROR, Agreement, AnnotatedPair, AnnotatorError, agreement_of
from spanscore.semconv import ANNOTATOR_HUMAN

__all__ = ["AnnotationFacts", "annotation_facts", "error_rate_in"]

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class AnnotationFacts:
    """What labels tell besides their verdicts.

    Attributes:
        times: when labels were given; labels without a time are left out.
        timeless: labels without a time.
        unnamed: labels without the name of an annotator.
        agreement: of named annotators on the same units.
        error: of one annotator; None = not known, and labels count as right.
        measured: whether ``error`` comes from the agreement.
    """

    times: tuple[datetime, ...]
    timeless: int
    unnamed: int
    agreement: Agreement
    error: AnnotatorError | None
    measured: bool

    def error_of(self, balances: Iterable[int]) -> AnnotatorError:
        """Return the error of labels that are majorities: votes for a pass less those against it; ties are left out."""
        decided = [abs(balance) for balance in balances if balance]
        return KNOWN_ERROR if self.error is None or not decided else self.error.of_majorities(decided)

    def notes(self, now: datetime | None = None) -> Iterator[str]:
        """Yield a sentence for each; ``now``: the time from which ages count, None = the present."""
        yield self._age(now or datetime.now(UTC))
        of, error = self.agreement, self.error
        unnamed = f"; the annotator of {self.unnamed:,} labels is unknown" if self.unnamed else ""
        if of.share is None:
            yield f"how far annotators agree is unknown: no unit has labels of two named annotators{unnamed}"
        else:
            yield f"annotators agree on {100 * of.share:.0f} % of the {of.units:,} units that two or more labelled{unnamed}"
        if error is None:
            yield "how often an annotator is wrong is unknown: labels count as right; --annotator-error RATE corrects for it"
        else:
            source = f"measured on {of.units:,} units" if self.measured else "as given"
            yield f"one annotator is wrong in {100 * error.rate:.1f} % ({source}): J, κ and pass rates are corrected for it"

    def _age(self, now: datetime) -> str:
        if not self.times:
            return "the age of the labels is unknown: none has a time (when)"
        ends = min(self.times), max(self.times)
        oldest, newest = (f"{max(0.0, (now - end).total_seconds()) / _DAY_S:,.0f} days old" for end in ends)
        rest = f"; the age of {self.timeless:,} labels is unknown" if self.timeless else ""
        return f"labels are from {ends[0]:%Y-%m-%d}, {oldest}, to {ends[1]:%Y-%m-%d}, {newest}{rest}"

    def as_json(self) -> dict[str, Any]:
        """Return the values; None = unknown."""
        times = self.times
        return {
            "age": {
                "oldest": min(times).isoformat() if times else None,
                "newest": max(times).isoformat() if times else None,
                "unknown": self.timeless,
            },
            "annotators": {
                "units": self.agreement.units,
                "agreement": self.agreement.share,
                "unknown": self.unnamed,
                "error": None if self.error is None else self.error.rate,
                "measured": self.measured,
            },
        }


def annotation_facts(
    labels: Sequence[Annotation | None],
    units: Sequence[object],
    pairs: Sequence[AnnotatedPair],
    error_rate: float | None,
) -> AnnotationFacts:
    """Return what labels tell.

    Args:
        labels: one per line; None = the line has none of these facts.
        units: the unit of each label.
        pairs: what each label says.
        error_rate: how often one annotator is wrong; None = it is measured, if enough units have several annotators.

    Raises:
        ConfigurationError: it is to be measured, and annotators disagree as often as coins do.
    """
    times = [time for label in labels if (time := _time_of(label)) is not None]
    named: defaultdict[object, list[bool]] = defaultdict(list)
    for label, unit, pair in zip(labels, units, pairs, strict=True):
        if label is not None and label.annotator != ANNOTATOR_HUMAN:  # any person
            named[unit].append(pair.human)
    agreement = agreement_of(named.values())
    error = agreement.error() if error_rate is None else AnnotatorError(error_rate)
    return AnnotationFacts(
        times=tuple(times),
        timeless=len(labels) - len(times),
        unnamed=len(labels) - sum(map(len, named.values())),
        agreement=agreement,
        error=error,
        measured=error_rate is None and error is not None,
    )


def _time_of(label: Annotation | None) -> datetime | None:
    """Return when a label was given; None if that is not known, or no date."""
    if label is None or label.when_ns is None:
        return None
    try:
        return datetime.fromtimestamp(label.when_ns / 1e9, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def error_rate_in(text: str) -> float:
    """Return the rate of ``--annotator-error``, [0, .5): a number, or per cent."""
    try:
        rate = float(share_in(text))
    except ValueError:
        rate = -1.0
    if not 0.0 <= rate < 0.5:  # noqa: PLR2004  (a coin)
        raise typer.BadParameter(f"{text!r} is no error rate; allowed is 0 or more, below 0.5, such as 0.05 or 5%")
    return rate
