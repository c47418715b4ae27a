"""Makes the pictures of this folder: python -m docs.explanation.pictures. Their figures come from the code they are about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape
from math import log
from pathlib import Path

from spanscore.config.monitoring import AlertSettings, Monitoring
from spanscore.metrics import AspectCritic
from spanscore.monitoring.drops import plans_of
from spanscore.monitoring.estimates import interval, mean, moments
from spanscore.monitoring.watched_means import watched_means

HERE = Path(__file__).parent
WIDTH = 720
STYLE = """
.bg{fill:#fff;stroke:#d0d7de}.t{fill:#1f2328}.d{fill:#59636e}.l{stroke:#8c959f;fill:none}
.a{fill:#0f766e;stroke:#0f766e}.b{fill:#b45309;stroke:#b45309}.n{fill:#d0d7de;stroke:#8c959f}.ta{fill:#0f766e}.tb{fill:#b45309}
.box{fill:none;stroke:#0f766e;stroke-dasharray:5 4}.s{fill-opacity:.18;stroke-width:1.5}
@media(prefers-color-scheme:dark){.bg{fill:#161b22;stroke:#3d444d}.t{fill:#e6edf3}.d{fill:#9198a1}.l{stroke:#656c76}
.a{fill:#2dd4bf;stroke:#2dd4bf}.b{fill:#fbbf24;stroke:#fbbf24}.n{fill:#3d444d;stroke:#656c76}.ta{fill:#2dd4bf}.tb{fill:#fbbf24}
.box{stroke:#2dd4bf}}
"""
"""The card is painted, so that a picture can be read on a page of either colour."""


def text(x: float, y: float, said: str, kind: str = "t", *, at: str = "start", size: int = 13) -> str:
    """Return words; ``at`` is start, middle or end."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{at}" font-size="{size}">{escape(said)}</text>'


def box(x: float, y: float, width: float, height: float, kind: str) -> str:
    """Return a rectangle with round corners."""
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4"/>'


def line(kind: str, *points: tuple[float, float], dashed: bool = False) -> str:
    """Return a line through points."""
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline class="{kind}" style="fill:none" stroke-width="2" points="{path}"{dashes}/>'


def dot(x: float, y: float, kind: str, radius: float = 4) -> str:
    """Return a dot."""
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>'


def unit() -> Iterator[str]:
    """Two chains below one request are two units."""
    rows = [
        (0, "POST /chat", "yours: no unit", "n"),
        (1, "invoke_workflow guide", "a unit: the scores of this answer stand here", "a"),
        (2, "retrieval Library", "its documents are the contexts", "n"),
        (2, "chat gpt-4o-mini", "", "n"),
        (1, "invoke_agent booking", "another unit, in the same trace", "a"),
        (2, "execute_tool find_ferry", "", "n"),
        (2, "chat gpt-4o-mini", "", "n"),
    ]
    yield from (box(38, top, 644, 94, "box") for top in (54, 150))
    for index, (depth, name, why, kind) in enumerate(rows):
        y = 22 + 32 * index
        yield box(24 + 28 * depth, y, 210, 24, f"{kind} s")
        yield text(34 + 28 * depth, y + 17, name)
        yield text(310, y + 17, why, "d")


def hold() -> Iterator[str]:
    """A unit with scores in time, and a unit with a slow judge."""
    x0, second = 120.0, 46.0
    for row, (title, scored) in enumerate((("in time", 3.0), ("late", 12.0))):
        y, left = 36 + 76 * row, min(scored, 10.0) + 1
        yield text(20, y + 18, title)
        yield box(x0, y, second, 24, "a s")
        yield text(x0 + second / 2, y + 17, "run", at="middle")
        yield box(x0 + second, y, (left - 1) * second, 24, "n s")
        yield text(x0 + second + 10, y + 17, "its spans wait" if row == 0 else "its spans wait, 10 s at most")
        yield line("l", (x0 + left * second, y - 6), (x0 + left * second, y + 30))
        says = ("they leave, with the scores on them", "they leave, pending")[row]
        yield text(x0 + left * second, y + 45, says, "ta" if row == 0 else "tb", at="middle")
    yield dot(x0 + 12 * second, 124, "a")
    yield text(x0 + 12 * second, 104, "score", "ta", at="middle")
    yield text(20, 196, "The answer was there at the end of the run: the application waits for nothing of this.", "d")
    yield text(20, 216, "A late score is an evaluation span of its own, in the same trace.", "d")


def weights() -> Iterator[str]:
    """Errors are scored always, the rest at one in twenty."""
    groups = [("requests that failed", 100, 1.0, 0.4), ("all others", 900, 0.05, 0.9)]
    taken = [(one, rate) for _, count, rate, one in groups for _ in range(round(count * rate))]
    plain, weighted = sum(one for one, _ in taken) / len(taken), mean(moments(taken))
    for x, head in ((20, "traffic"), (270, "scored"), (430, "each stands for"), (570, "mean quality")):
        yield text(x, 30, head, "d")
    for row, (name, count, rate, one) in enumerate(groups):
        y = 44 + 44 * row
        yield box(20, y, count / 900 * 220, 28, "n s")
        yield text(28 if row else 28 + count / 900 * 220, y + 19, f"{count} {name}")
        yield box(270, y, max(14.0, count * rate), 28, "a s")
        yield text(278, y + 19, f"{count * rate:.0f}")
        yield text(430, y + 19, f"{1 / rate:.0f}")
        yield text(570, y + 19, f"{one}")
    yield text(20, 160, f"Plain mean of the {len(taken)} scores: {plain:.2f}. It is the mean of no traffic.", "tb")
    yield text(
        20, 184, f"Each score weighed by what it stands for: {weighted:.2f}, the mean of all 1,000 requests.", "ta"
    )


def intervals() -> Iterator[str]:
    """The interval of a mean of 0.9, by the number of scores."""
    sizes = (10, 30, 100, 300, 1000, 3000)
    yield from _scale(0.5, 1.0, 0.1)
    for index, size in enumerate(sizes):
        passed = round(0.9 * size)
        low, high = interval(moments([(1.0, 1.0)] * passed + [(0.0, 1.0)] * (size - passed)))
        x = 130 + 100 * index
        yield box(x - 16, _at(high), 32, _at(low) - _at(high), "a s")
        yield dot(x, _at(0.9), "a")
        yield text(x, 218, f"{size:,}", at="middle")
        yield text(x, _at(low) + 16, f"{low:.2f}", "d", at="middle", size=12)
    yield text(20, 238, "scores, all pass or fail, nine of ten pass", "d")


def evaluator_versions() -> Iterator[str]:
    """Another judge is another evaluator version, and no drop."""
    yield from _scale(0.5, 1.0, 0.1)
    strays = (0, 0.012, -0.008, 0.015, -0.014, 0.006, -0.004, 0.01, -0.01, 0.004)
    for kind, first, level, judge in (("a", 90, 0.86, "gpt-4o-mini"), ("b", 390, 0.72, "gpt-5-mini")):
        points = [(first + 28 * index, _at(level + stray)) for index, stray in enumerate(strays)]
        yield line(kind, *points)
        yield from (dot(x, y, kind, 3) for x, y in points)
        yield text(first, _at(level) + 32, f"version 2+e6e8c9b4/{judge}/1", f"t{kind}")
    yield line("l", (366, 26), (366, 202), dashed=True)
    yield text(372, 38, "SpanscoreNewEvaluatorVersion, info: it wakes nobody", "d")
    yield text(20, 238, "Nobody's answers became worse. The scale changed, and is not compared with the old one.", "d")


def alerts() -> Iterator[str]:
    """How far below its baseline a window's mean alarms."""
    alert = AlertSettings(baseline=0.9, min_drop=0.1)
    metric = AspectCritic("lexical", name="harmless", definition="-")
    (plan,) = plans_of(watched_means({"harmless": alert}, [metric]), Monitoring())
    yield from _scale(0.7, 0.9, 0.05)
    yield line("a", (80, _at(0.9, 0.7, 0.9)), (690, _at(0.9, 0.7, 0.9)))
    yield text(690, _at(0.9, 0.7, 0.9) - 8, "baseline 0.9", "ta", at="end")
    tolerated = _at(plan.null, 0.7, 0.9)
    yield line("l", (80, tolerated), (690, tolerated), dashed=True)
    yield text(690, tolerated - 6, f"{plan.null:g}: no drop yet", "d", at="end")
    for index, (window, z) in enumerate(plan.windows.items()):
        scores, x = round(window / 6), 130 + 120 * index
        yield text(x, 218, f"{_span(window)}: {scores:,}", at="middle")
        if scores < plan.least:
            yield text(x, 190, "says nothing", "d", at="middle")
            continue
        worst = _at(_alarming(scores, plan.null, z), 0.7, 0.9)
        yield box(x - 24, worst, 48, 202 - worst, "b s")
        yield text(x, worst + 18, f"{_alarming(scores, plan.null, z):.2f}", "tb", at="middle")
    yield text(20, 238, "window: its scores, at ten a minute. Orange: means that alarm.", "d")


def _alarming(scores: int, null: float, z: float) -> float:
    """Return the mean of so many pass/fail scores that is z standard errors below the null, by its deviance."""
    low, high = 0.0, null
    for _ in range(60):
        middle = (low + high) / 2
        deviance = 2 * (
            (1 - middle) * log((1 - middle) / (1 - null)) + (middle * log(middle / null) if middle else 0.0)
        )
        low, high = (middle, high) if scores * deviance > z * z else (low, middle)
    return low


def _span(seconds: float) -> str:
    return next(
        f"{seconds / size:g} {name}" for name, size in (("d", 86400), ("h", 3600), ("min", 60)) if seconds >= size
    )


def _at(value: float, low: float = 0.5, high: float = 1.0) -> float:
    return 202 - (value - low) / (high - low) * 172


def _scale(low: float, high: float, step: float) -> Iterator[str]:
    value = low
    while value <= high + step / 2:
        yield line("l", (72, _at(value, low, high)), (80, _at(value, low, high)))
        yield text(64, _at(value, low, high) + 4, f"{value:g}", "d", at="end", size=12)
        value = round(value + step, 6)


PICTURES: dict[str, tuple[Callable[[], Iterator[str]], int]] = {
    "unit.svg": (unit, 260),
    "hold.svg": (hold, 232),
    "weights.svg": (weights, 204),
    "intervals.svg": (intervals, 252),
    "evaluator-versions.svg": (evaluator_versions, 252),
    "alerts.svg": (alerts, 252),
}
"""File → its content and its height."""


def written() -> dict[str, str]:
    """Return each file's text."""
    return {name: _card(draw, height) for name, (draw, height) in PICTURES.items()}


def _card(draw: Callable[[], Iterator[str]], height: int) -> str:
    view = f'viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif"'
    title = f"<title>{escape((draw.__doc__ or '').strip())}</title>"
    ground = f'<rect class="bg" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" {view}>'
    return "\n".join([head, title, f"<style>{STYLE}</style>", ground, *draw(), "</svg>", ""])


if __name__ == "__main__":
    for name, drawn in written().items():
        (HERE / name).write_text(drawn, "utf-8")
