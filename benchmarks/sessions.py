"""Simulation of conversation scores: their mean if long conversations are worse, with one process and with several.

    python -m benchmarks.sessions [--visits 5000] [--months 100] [--report FILE]

Visitors talk to an application; long conversations go wrong more often, and early on. The judge sees the messages that
``SessionTable`` joins; a conversation is good if no answer in it is wrong. The counted scores are compared with those of the
whole conversations. Then the false alarms of the drop alert are counted, as in ``benchmarks.alerts``, on turns that are similar
within a conversation, and on one score of each conversation. Takes five minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import alerts
from benchmarks.alerts import DAY, MONTH, SETS, TOLERATED, Flags, Floats, Sums
from spanscore.core.sample import AIMessage, HumanMessage, Message, MultiTurnSample, Samples, SingleTurnSample
from spanscore.core.span import SpanData, UnitKey
from spanscore.pipeline.session_turns import Turn
from spanscore.pipeline.sessions import EndedSession, SessionBounds, SessionTable

S = 1_000_000_000
TURNS = 8
"""Mean number of turns of a conversation; geometric, because many visitors leave after one."""
BEST, WORSE = 0.983, 0.03
"""A share ``BEST`` - ``WORSE`` · turns of the conversations is good, at least a twentieth: .747 of them."""
BREAK_S = 3_600


@dataclass(frozen=True)
class World:
    """The behaviour of visitors, and the routing of their turns.

    Attributes:
        brings: whether each turn includes the whole conversation.
        pods: number of processes; any of them may get a turn.
        replicas: setting on the routing of turns, ``sessions.replicas``.
        ends: share of conversations that the application ends by ``end_session``.
        ends_anywhere: whether that call may reach any process, instead of the one with the last turn.
        breaks: share of pauses that are longer than ``idle_timeout``.
    """

    brings: bool = False
    pods: int = 1
    replicas: str = "one"
    ends: float = 0.3
    ends_anywhere: bool = False
    breaks: float = 0.0


class Visit(NamedTuple):
    """A true conversation.

    Attributes:
        times: ends of its turns, in s.
        wrong: number of the turn with a wrong answer; 0 = none.
    """

    id: str
    times: Floats
    wrong: int

    def messages(self) -> list[Message]:
        """Return the messages of the conversation."""
        numbers = range(1, len(self.times) + 1)
        said = (
            (HumanMessage(content=f"{n}"), AIMessage(content="wrong" if n == self.wrong else "right")) for n in numbers
        )
        return list(chain.from_iterable(said))


class Found(NamedTuple):
    """The result for conversations.

    Attributes:
        mean: mean of the counted conversations.
        true: mean of all whole conversations.
        by_turns: mean if each turn is scored with all turns before it.
        counted: counted scores per conversation.
        incomplete: ends that were reported as incomplete, per conversation.
    """

    mean: float
    true: float
    by_turns: float
    counted: float
    incomplete: float

    @property
    def bias(self) -> float:
        """Bias of the mean."""
        return self.mean - self.true


def visits(count: int, world: World, rng: np.random.Generator) -> Iterator[Visit]:
    """Yield this many conversations, which begin within a day."""
    for number, turns in enumerate(rng.geometric(1 / TURNS, count)):
        pauses = np.minimum(rng.exponential(60.0, turns), 240.0)
        pauses[1:] += BREAK_S * (rng.random(turns - 1) < world.breaks)
        times = rng.uniform(0, 86_400.0) + np.cumsum(pauses)
        is_good = rng.random() < max(0.05, BEST - WORSE * turns)
        yield Visit(f"visit {number}", times, 0 if is_good else int(rng.integers(1, 1 + -(-turns // 4))))


def found(world: World, count: int, seed: int = 0) -> Found:
    """Return the result for this many conversations."""
    rng = np.random.default_rng([seed, 22])
    came = list(visits(count, world, rng))
    ended = list(played(came, world, rng))
    scores = [
        score(one) for one in ended if one.unit.revision == 0 and one.why_incomplete is None and one.end != "open"
    ]
    good = [visit.wrong == 0 for visit in came]
    by_turns = [(visit.wrong or len(visit.times) + 1) - 1 for visit in came]
    return Found(
        mean=float(np.mean(scores)) if scores else float("nan"),
        true=float(np.mean(good)),
        by_turns=sum(by_turns) / sum(len(visit.times) for visit in came),
        counted=len(scores) / count,
        incomplete=sum(one.why_incomplete is not None for one in ended if one.unit.revision == 0) / count,
    )


def score(ended: EndedSession) -> float:
    """Return the judge's score of the conversation that it sees."""
    shown = ended.samples.multi_turn
    assert shown is not None
    return float(all(message.content != "wrong" for message in shown.user_input))


def played(came: Sequence[Visit], world: World, rng: np.random.Generator) -> Iterator[EndedSession]:
    """Let processes collect conversations; yield the ended ones in order."""
    bounds = SessionBounds(replicas=world.replicas, max_open=len(came), max_bytes=1 << 40)  # type: ignore[arg-type]
    pods = [SessionTable(bounds) for _ in range(world.pods)]
    said = [visit.messages() for visit in came]
    is_ended = rng.random(len(came)) < world.ends
    events = sorted(
        (at, which, n) for which, visit in enumerate(came) for n, at in enumerate(visit.times.tolist(), start=1)
    )
    for at, which, n in events:
        now_ns, pod = int(at * S), pods[rng.integers(world.pods)]
        yield from chain.from_iterable(one.due(now_ns) for one in pods)
        turn = _turn(came[which].id, which, n, said[which][0 if world.brings else 2 * n - 2 : 2 * n])
        yield from pod.take(turn._replace(end_ns=now_ns), now_ns)
        if is_ended[which] and n == len(came[which].times):
            ending = pods[rng.integers(world.pods)] if world.ends_anywhere else pod
            yield from filter(None, [ending.end(came[which].id)])
    end_ns = now_ns + 10 * BREAK_S * S
    for one in pods:
        yield from (*one.due(end_ns), *one.close_all())


def _turn(id: str, which: int, n: int, messages: list[Message]) -> Turn:
    unit = UnitKey(which + 1, n)
    root = SpanData(trace_id=which + 1, span_id=n, parent_id=None, name="chat", start_ns=0, end_ns=0)
    if len(messages) > 2:
        return Turn(id, unit, root, 0, Samples(multi_turn=MultiTurnSample(user_input=messages)))
    asked, answered = (message.content for message in messages)
    return Turn(id, unit, root, 0, Samples(single_turn=SingleTurnSample(user_input=asked, response=answered)))


ALIKE = 0.5
"""Correlation of two turns of a conversation."""
OF_FIVE = 5
IDLE_MINUTES = 5


def false_alarms(
    per_minute: float, months: int, observed: Callable[[Flags, Floats], Iterator[tuple[Floats, Flags]]]
) -> float:
    """Return the alerts that begin in 30 days without a drop, at the lowest tolerated mean.

    Args:
        per_minute: conversations of five turns that begin per minute.
        months: number of simulated months.
        observed: turns of conversations, conversations × 5 → scores and their times.
    """
    null = 0.85 - TOLERATED
    rules = alerts.rules_of(SETS[1], null)
    begun = 0
    for month in range(months):
        sums = _sums(per_minute, observed, null, np.random.default_rng([month, 13]))
        on = alerts.firing(alerts.windows_of(sums, SETS[1]), rules)
        begun += alerts.begun(on)
    return begun / months


def turns(good: Flags, at: Floats) -> Iterator[tuple[Floats, Flags]]:
    """Score each turn at its end."""
    yield at.ravel(), good.ravel()


def conversations(good: Flags, at: Floats) -> Iterator[tuple[Floats, Flags]]:
    """Score each conversation once, after its silence; its score is that of its last turn."""
    yield at[:, -1] + IDLE_MINUTES, good[:, -1]


def of_five(per_minute: float, minutes: int, mean: float, rng: np.random.Generator) -> tuple[Flags, Floats]:
    """Return conversations of five turns with similar quality: good turns, and the minutes in which turns end."""
    count = rng.poisson(per_minute * minutes)
    begins = rng.uniform(0, minutes, (count, 1))
    at = begins + np.cumsum(np.minimum(rng.exponential(1.0, (count, OF_FIVE)), 4.0), axis=1)
    is_as_all = rng.random((count, OF_FIVE)) < np.sqrt(ALIKE)
    good: Flags = np.where(is_as_all, rng.random((count, 1)) < mean, rng.random((count, OF_FIVE)) < mean)
    return good, at


def _sums(
    per_minute: float,
    observed: Callable[[Flags, Floats], Iterable[tuple[Floats, Flags]]],
    mean: float,
    rng: np.random.Generator,
) -> Sums:
    minutes = MONTH + DAY
    n, y = np.zeros((1, minutes)), np.zeros((1, minutes))
    for at, good in observed(*of_five(per_minute, minutes, mean, rng)):
        minute = at.astype(np.int64)
        within = minute < minutes
        n[0] += np.bincount(minute[within], minlength=minutes)
        y[0] += np.bincount(minute[within], good[within], minutes)
    return Sums(n, y, y)


ONE = World()
ANY = World(brings=True, pods=4, replicas="any", ends=1.0)
WORLDS = {
    "one process, turns bring no history": ONE,
    "one process, turns bring the history": replace(ONE, brings=True),
    "one process, one pause in fifty is longer than `idle_timeout`": replace(ONE, breaks=0.02),
    "4 pods configured as one process, no history": replace(ONE, pods=4, ends=0.0),
    "4 pods configured as one process, history": replace(ONE, pods=4, ends=0.0, brings=True),
    "4 pods, `any`, history, ended with the last turn": ANY,
    "4 pods, `any`, history, six in ten ended with the last turn": replace(ANY, ends=0.6),
    "4 pods, `any`, history, ended in any pod": replace(ANY, ends_anywhere=True),
    "4 pods, `any`, no history, ended with the last turn": replace(ANY, brings=False),
}


def _mean_rows(count: int) -> Iterator[str]:
    yield "| world | true mean | mean by turns | counted mean | bias | counted per conversation | incomplete per conversation |"
    yield "|---|---|---|---|---|---|---|"
    for name, world in WORLDS.items():
        one = found(world, count)
        means = f"{one.true:.3f} | {one.by_turns:.3f} | {one.mean:.3f} | {one.bias:+.3f}"
        yield f"| {name} | {means} | {one.counted:.2f} | {one.incomplete:.2f} |".replace("nan", "–").replace("+–", "–")


def _alarm_rows(months: int) -> Iterator[str]:
    yield "| conversations a minute | false alarms: each turn scored | false alarms: one score per conversation |"
    yield "|---|---|---|"
    for per_minute in (1.0, 3.0, 10.0):
        rates = (false_alarms(per_minute, months, observed) for observed in (turns, conversations))
        yield f"| {per_minute:g} | " + " | ".join(f"{rate:.2f}" for rate in rates) + " |"


HEAD = """# Conversation scores, simulated

This page shows how the mean of conversation scores depends on the number of
processes, and how many false alarms come from dependent turns. `python -m benchmarks.sessions` scores the conversations of
`SessionTable`, with fixed seeds and without a model: a conversation is good if no answer in it is wrong."""
MEANS = """## The mean of conversations

5,000 visitors have eight turns on average, and long conversations go wrong more often. *True mean* is the share of good
conversations. *Mean by turns* scores each turn with all earlier turns. *Counted* and *incomplete* are the ends of each kind
per conversation, because each of four pods may report one. `any` is the value of `sessions.replicas`."""
ALARMS = """## False alarms in 30 days, with one allowed

Conversations have five turns, and two turns of one conversation have a correlation of 0.5. The metric is pass/fail with a
mean of 0.85, the lowest tolerated mean. The windows are 1h, 6h and 1d. The score of a conversation is that of its last
turn."""


def main() -> None:
    """Print the tables, or write them to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visits", type=int, default=5_000, help="visits per row of the first table")
    parser.add_argument("--months", type=int, default=100, help="months per cell of the second table")
    parser.add_argument("--report", type=Path, help="file for the tables")
    asked = parser.parse_args()
    tables = {MEANS: _mean_rows(asked.visits), ALARMS: _alarm_rows(asked.months)}
    text = "\n\n".join([HEAD, *(f"{words}\n\n" + "\n".join(rows) for words, rows in tables.items())]) + "\n"
    asked.report.write_text(text, encoding="utf-8") if asked.report else print(text)


if __name__ == "__main__":
    main()
