"""Unit → Job, pure: dialect, then hooks; what cannot become a job ends here with its outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spanscore.foreign import type_name
from spanscore.hooks import Hooks
from spanscore.model.job import Decision, Job
from spanscore.model.sample import Samples
from spanscore.model.score import Outcome
from spanscore.model.span import Facts, Unit
from spanscore.protocols import Dialect
from spanscore.timebox import Hung, Timebox

__all__ = ["Chosen", "Pipeline", "facts_of"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A unit that at least one metric takes.

    Attributes:
        decisions: of the metrics that take it.
        samples: given for a sample that was submitted by hand; else a dialect makes them.
        weight: bytes of its content, roughly, as they are reserved in the queue.
    """

    unit: Unit
    decisions: Mapping[str, Decision]
    samples: Samples | None = None
    weight: int = 0


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Makes jobs.

    Attributes:
        dialects: asked in order; the first that claims the unit's root makes the samples.
        box: where the functions of the user that are among all this, if there are, run.
    """

    dialects: Sequence[Dialect]
    hooks: Hooks = field(default_factory=Hooks)
    box: Timebox = field(default_factory=Timebox)

    async def job_in_time(self, chosen: Chosen) -> Job:
        """Make the job on a thread of the box; a hook that hangs is the outcome of its unit."""
        try:
            return await self.box.done(lambda: self.job(chosen))
        except Hung as hung:
            return _job(chosen, Samples(outcome=hung.outcome, reason=hung.reason))

    def job(self, chosen: Chosen) -> Job:
        """Make the job; ``job.samples.outcome`` says when there is nothing to score.

        Raises:
            Hung: a hook hangs, and nothing else.
        """
        try:
            samples = chosen.samples or self._samples(chosen.unit)
        except Hung:
            raise
        except BaseException as error:  # noqa: BLE001  (a user's Extract or dialect; the class only: its text may quote)
            samples = Samples(outcome=Outcome.NO_SAMPLE, reason=f"making the sample raised {type_name(error)}")
        return _job(chosen, self.hooks.apply(samples))

    def _samples(self, unit: Unit) -> Samples:
        root = unit.root
        for dialect in self.dialects:
            if root is not None and dialect.claims(root):
                return dialect.samples(unit)
        return Samples(outcome=Outcome.NO_SAMPLE, reason="no dialect reads spans of this scope")


def _job(chosen: Chosen, samples: Samples) -> Job:
    return Job(chosen.unit.without_content(), samples, chosen.decisions, chosen.weight)


def facts_of(unit: Unit) -> Facts:
    """Return what a sampler may look at once the unit has closed."""
    root = unit.root
    if root is None:
        return Facts(key=unit.key)
    return Facts(
        key=unit.key,
        is_trace_root=root.parent_id is None,
        trace_state=root.trace_state,
        name=root.name.partition(" ")[2],
        operation=root.operation,
        status=root.status,
        duration_ns=root.end_ns - root.start_ns,
        metadata=root.metadata,
    )
