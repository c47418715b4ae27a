"""``spanscore compare``: whether the second of two releases is worse on live traffic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def compare(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The scorer's configuration, with 'compare'.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILES",
            help="In place of --prometheus: the spans of both, OTLP-JSON lines; or one file with --control and --candidate.",
        ),
    ] = None,
    *,
    prometheus: Annotated[
        str, typer.Option(metavar="URL", help="Where the sums are, such as http://localhost:9090.")
    ] = "",
    control: Annotated[
        str, typer.Option("--control", metavar="VALUE", help="The release that was there before: 1.4.")
    ] = "",
    candidate: Annotated[
        str, typer.Option("--candidate", metavar="VALUE", help="The one that may be worse: 1.5.")
    ] = "",
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="How far back: 6h, or a time, such as that of the release: 2026-07-01T12:00Z."
        ),
    ] = "1d",
    tolerance: Annotated[
        float, typer.Option(metavar="X", help="By how much the mean quality may be worse, from 0 to 1.")
    ] = 0.0,
    level: Annotated[float, typer.Option(metavar="X", help="With which the interval of each metric holds.")] = 0.95,
    metric: Annotated[list[str] | None, typer.Option(help="Only this metric; can be given again.")] = None,
    job: Annotated[str, typer.Option(help="Only this job, the service; else all of them together.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Compare two releases on live traffic: is the second one worse?

    [bold]spanscore compare spanscore.yaml --prometheus http://localhost:9090 --control 1.4 --candidate 1.5 --tolerance
    0.05[/bold]

    Per metric the weighted difference within the hour, with an interval that holds at every look: run it as often as you like.
    There is an answer from ten quarters of an hour on in which both have traffic; before, "not yet", and from when. In the
    configuration [bold]compare: {by: service.version}[/bold] says what tells releases apart.

    The exit code is 0 where no metric is worse by more than --tolerance, 1 where one is, 3 where that is not decided yet: then
    it says how long it takes at this traffic. With a tolerance of 0 a release that is just as good is never told from a worse
    one: give one.
    """
    from spanscore.cli._compare_run import CompareRun

    ended = CompareRun(
        config=config,
        files=files or (),
        prometheus=prometheus,
        control=control,
        candidate=candidate,
        since=since,
        tolerance=tolerance,
        level=level,
        metrics=metric or (),
        job=job,
        as_json=as_json,
    ).run()
    if ended:
        raise typer.Exit(ended)
