"""Labelled samples that are judged again and again, to see whether the judge is still the same."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import Field

from spanscore.settings.kinds import AnyPath, Items, PositiveSeconds, SettingsPart

__all__ = ["JudgeCheck"]

SHORTEST_S: Final = 60.0
LONGEST_S: Final = 30 * 86_400.0


class JudgeCheck(SettingsPart):
    """Labelled samples that the judges are asked about on a schedule: a judge that has changed is told from an application
    that has. They are no part of sampling: their scores have the source ``judge_check``, and are in no mean.

    Attributes:
        golden_set: file of labelled samples, JSON lines: each with ``human`` and the fields of a sample, seen from the working
            directory. Read once, when the scorer is made.
        every: time from the start of one run to that of the next, 1m to 30d; the first is within a minute of the first unit.
        metrics: names of the watched metrics; none = each that asks a judge.
        name: name of the labels; None = the file has but one.
        baseline: file in which the first answers of each evaluator version are kept, with which later runs are compared; None =
            beside ``golden_set``, ending in ``.baseline.json``. It must outlive the process: where it cannot be written, each
            process compares with its own first run. Of the processes of a machine that share it and watch the same evaluator
            version, one has runs.
    """

    section: ClassVar[str] = "judge_check"
    golden_set: AnyPath
    every: Annotated[PositiveSeconds, Field(ge=SHORTEST_S, le=LONGEST_S)] = 21_600.0
    metrics: Items[str] = ()
    name: str | None = None
    baseline: AnyPath | None = None

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
