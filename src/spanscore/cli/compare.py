"""``spanscore compare``: whether the second of two releases is worse than the first on live traffic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from spanscore.cli._options import OnlyJob, OnlyMetrics


def compare(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The scorer's configuration, with 'compare'.")],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILES",
            help="In place of --prometheus: two files of spans as OTLP-JSON lines, or one file with --control and --candidate.",
        ),
    ] = None,
    *,
    prometheus: Annotated[
        str,
        typer.Option(
            metavar="URL", help="Server with the sums (http://localhost:9090); needs --control and --candidate."
        ),
    ] = "",
    control: Annotated[str, typer.Option("--control", metavar="VALUE", help="The earlier release, such as 1.4.")] = "",
    candidate: Annotated[
        str, typer.Option("--candidate", metavar="VALUE", help="The release that may be worse, such as 1.5.")
    ] = "",
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="How far back: 6h, or a time, such as that of the release: 2026-07-01T12:00Z."
        ),
    ] = "1d",
    tolerance: Annotated[
        float, typer.Option(metavar="X", help="Tolerated decrease of the mean quality, 0 to 1.")
    ] = 0.0,
    level: Annotated[
        float, typer.Option(metavar="X", help="Confidence level of each interval, 0.7 to below 1.")
    ] = 0.95,
    metric: OnlyMetrics = None,
    job: OnlyJob = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
) -> None:
    """Compare two releases on live traffic: is the second release worse?

    [bold]spanscore compare spanscore.yaml --prometheus http://localhost:9090 --control 1.4 --candidate 1.5 --tolerance
    0.05[/bold]

    The result is the weighted difference within the hour, per metric. The interval holds at every look: run the command as
    often as you like. A verdict needs scores in ten quarters of an hour, of hours in which both releases have scores. Until
    then it is "not yet", with the time of the first verdict. In the configuration, [bold]compare: {by:
    service.version}[/bold] names the attribute that identifies a release.

    The exit code is 0 if no metric is worse by more than --tolerance, and 1 if a metric is. The exit code is 3 if a verdict
    is still open; the time that it needs at this traffic is then printed. Set a tolerance: with 0, an equally good release
    is never distinguished from a worse release.
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
