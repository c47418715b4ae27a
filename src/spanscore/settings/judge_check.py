"""Judge check: labelled samples that are judged again and again, to see whether the judge is still the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from spanscore.errors import ConfigurationError
from spanscore.settings.durations import seconds_of
from spanscore.settings.kinds import FilePath, PositiveSeconds, SettingsPart

__all__ = ["JudgeCheck", "JudgeCheckSettings", "judge_check_in"]

EVERY_S: Final = 21_600.0
SHORTEST_S: Final = 60.0
LONGEST_S: Final = 30 * 86_400.0


@dataclass(frozen=True, slots=True)
class JudgeCheck:
    """Labelled samples that the judges are asked about again and again, outside sampling; what is told of it is of a source of
    its own, ``judge_check``, and in no mean.

    Attributes:
        golden_set: file of labelled samples, JSON lines: each with ``human`` and the fields of a sample. Read once, when the
            scorer is made.
        every: from the start of one run to that of the next, ``"1m"`` to ``"30d"``, or its seconds. The first run is within a
            minute of the first unit.
        metrics: names of those that are watched; none = each that asks a judge.
        name: of the labels; None = the file has but one.
        baseline: file in which the first answers of each evaluator version are kept; None = beside ``golden_set``, ending in
            ``.baseline.json``. A judge is compared with them, so it must outlive the process. Of the processes of a machine
            that share it and watch the same evaluator version, one has runs.

    Raises:
        ConfigurationError: ``every`` is too short or too long.
    """

    golden_set: str | Path
    every: str | float = EVERY_S
    metrics: Sequence[str] = ()
    baseline: str | Path | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        try:
            fits = SHORTEST_S <= self.every_s <= LONGEST_S
        except (ValueError, TypeError):
            fits = False
        if not fits:
            raise ConfigurationError(f"a judge check's every is {self.every!r}; allowed is 1m to 30d")

    @property
    def every_s(self) -> float:
        """The same in seconds."""
        return seconds_of(self.every) if isinstance(self.every, str) else float(self.every)

    @property
    def path(self) -> Path:
        """The file of labels."""
        return Path(self.golden_set).expanduser()

    @property
    def baseline_path(self) -> Path:
        """Where the first answers are kept."""
        if self.baseline is not None:
            return Path(self.baseline).expanduser()
        return self.path.with_suffix(".baseline.json")

    def lock_path(self, evaluator_versions: Iterable[str]) -> Path:
        """Return the lock file of the one process that runs the check for these evaluator versions; others have their own."""
        of = blake2b("\n".join(sorted(evaluator_versions)).encode("utf-8", "replace"), digest_size=4).hexdigest()
        return self.baseline_path.with_name(f"{self.baseline_path.name}.{of}.lock")


class JudgeCheckSettings(SettingsPart):
    """Labelled samples that the judges are asked about on a schedule: a judge that has changed is told from an application
    that has.

    Attributes:
        golden_set: file of labelled samples, JSON lines: each with ``human`` and the fields of a sample, seen from the working
            directory. Read once.
        every: from the start of one run to that of the next; the first is within a minute of the first unit.
        metrics: those that are watched; none = each that asks a judge.
        name: of the labels; None = the file has but one.
        baseline: file in which the first answers of each evaluator version are kept, with which later runs are compared; None =
            beside ``golden_set``, ending in ``.baseline.json``. It must outlive the process: where it cannot be written, each
            process compares with its own first run. Of the processes of a machine that share it and watch the same evaluator
            version, one has runs.
    """

    golden_set: FilePath
    every: Annotated[PositiveSeconds, Field(ge=SHORTEST_S, le=LONGEST_S)] = EVERY_S
    metrics: list[str] = Field(default_factory=list)
    name: str | None = None
    baseline: FilePath | None = None


def judge_check_in(given: JudgeCheckSettings | None) -> JudgeCheck | None:
    """Return the judge check of a configuration."""
    return (
        None
        if given is None
        else JudgeCheck(given.golden_set, given.every, tuple(given.metrics), given.baseline, given.name)
    )
