"""Cost of a span in `spanscore serve`, compared with a bare receiver that decodes and answers: server CPU time on one core.

    python -m benchmarks.serve [--quick] [--only http --only grpc] [--memory]

One process per contestant, blocks interleaved: the bare receiver, a tee that samples 1 % of the units, one that samples
none, and a proxy. Each round has new processes, because two processes of the same program differ by a twentieth. A block ends
after all work that its spans caused. It prints microseconds of CPU per span, and the throughput per CPU as a share of the bare
receiver's; the targets are for the tee.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import random
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from benchmarks.otlp_load import Client, GrpcClient, HttpClient, Requests
from benchmarks.otlp_servers import SERVED, Contestant, contestants, sink

TARGETS = {("http", "plain"): 0.4, ("http", "gzip"): 0.75, ("grpc", "plain"): 0.3, ("grpc", "gzip"): 0.3}
"""Target for the tee: throughput per CPU as a share of the bare receiver's."""
MOST_ADDED_US = 4.0
"""Highest CPU time in µs that an unsampled span adds to that of the bare receiver; the aim is 3."""
WARM_UP, CONNECTED = 20_000, 5_000
"""Spans to each server before the measurement, so that some units are scored and imports are done; and spans on each new
connection."""
SETTLED_S = 1.7
"""Seconds after a block: units close after 0.3 s, and scores are exported every second."""
LATER_S = 0.1
"""Seconds after a refusal for overload: the client is faster than a server on one core."""
GROWTH_MIB = 32
MEMORY_SPANS = 1_000_000


class Shape(NamedTuple):
    """Form of the requests: ``http`` or ``grpc``, number of spans, ``plain`` or ``gzip``."""

    transport: str
    spans: int
    encoding: str

    def __str__(self) -> str:
        return f"{self.transport} {self.spans:>3} {self.encoding}"


_Running = Callable[[], AbstractContextManager[Sequence[Contestant]]]
SHAPES = [Shape(*one) for one in itertools.product(("http", "grpc"), (50, 512), ("plain", "gzip"))]


@dataclass
class Sender:
    """One connection to one contestant, with its requests."""

    client: Client
    requests: Iterator[bytes]
    spans: int

    @classmethod
    def to(cls, contestant: Contestant, shape: Shape) -> Sender:
        """Return a sender with a new connection."""
        is_gzip = shape.encoding == "gzip"
        client: Client = (
            HttpClient(contestant.http, is_gzip=is_gzip)
            if shape.transport == "http"
            else GrpcClient(contestant.grpc, is_gzip=is_gzip)
        )
        # gRPC compresses itself
        requests = iter(Requests(shape.spans, is_gzip=is_gzip and shape.transport == "http"))
        return cls(client, requests, shape.spans)

    def send(self, spans: int) -> int:
        """Send at least this many spans; return their number."""
        for number in itertools.count(1):
            body = next(self.requests)
            while not self.client.send(body):
                time.sleep(LATER_S)
            if number * self.spans >= spans:
                break
        return number * self.spans


def main() -> int:
    """Run and print; return 1 if a target is missed."""
    arguments = _arguments()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        taken = stack.enter_context(sink())
        running = partial(contestants, folder, taken.server_port)
        verdicts = [*_costs(running, arguments)]
        if arguments.memory:
            with running() as (_, tee, *_others):
                verdicts += _memory(tee)
        print(f"\n{taken.scores:,} scores have left")
    for met, line in verdicts:
        print(f"{'met   ' if met else 'MISSED'}  {line}")
    return 0 if all(met for met, _ in verdicts) else 1


def _costs(running: _Running, arguments: Any) -> Iterator[tuple[bool, str]]:
    """Measure, print a row for each shape, and yield its verdicts."""
    rng, rounds = random.Random(1), arguments.rounds
    us: dict[Shape, dict[str, list[float]]] = {shape: defaultdict(list) for shape in arguments.shapes}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        with running() as ones:
            for one in ones:
                Sender.to(one, arguments.shapes[0]).send(WARM_UP)
            for shape in rng.sample(arguments.shapes, len(us)):
                for one in rng.sample(ones, len(ones)):
                    us[shape][one.name].append(_block(one, Sender.to(one, shape), arguments.spans))
    names = ["bare", *SERVED]
    head = "".join(f"{name:>16}{'×':>7}" for name in names[1:])
    print(f"{'µs of CPU per span':22}{'bare':>8}{head}   unsampled more")
    for shape, of in us.items():
        yield from _verdicts(shape, {name: of[name] for name in names})


def _block(contestant: Contestant, sender: Sender, spans: int) -> float:
    """Return the server's CPU time per span, in µs."""
    sender.send(CONNECTED)
    time.sleep(SETTLED_S)
    gc.collect()
    before = contestant.cpu_ns()
    sent = sender.send(spans)
    time.sleep(SETTLED_S)
    return (contestant.cpu_ns() - before) / sent / 1e3


def _verdicts(shape: Shape, us: dict[str, list[float]]) -> Iterator[tuple[bool, str]]:
    """Print a row; yield its verdicts."""
    bare = mean(us["bare"])
    cells = "".join(
        f"{mean(own):9.2f} ±{_error(own):5.2f}{bare / mean(own):7.2f}" for name, own in us.items() if name != "bare"
    )
    more = [own - of_bare for own, of_bare in zip(us["tee, none"], us["bare"], strict=True)]
    added = mean(more)
    print(f"{shape!s:22}{bare:8.2f}{cells}{added:10.2f} ±{_error(more):5.2f}", flush=True)
    share, target = bare / mean(us["tee, 1 %"]), TARGETS[shape.transport, shape.encoding]
    yield share >= target, f"{shape}: tee has {share:.2f} × the throughput of the bare receiver (at least {target:g})"
    yield (
        added <= MOST_ADDED_US,
        f"{shape}: an unsampled span costs {added:.2f} µs more (at most {MOST_ADDED_US:g}; aim 3)",
    )


def _error(values: list[float]) -> float:
    return stdev(values) / len(values) ** 0.5 if len(values) > 1 else float("nan")


def _memory(tee: Contestant) -> Iterator[tuple[bool, str]]:
    """Send a million spans, and record the resident set."""
    sender, seen = Sender.to(tee, Shape("http", 512, "plain")), [tee.resident_mib()]
    for _ in range(10):
        sender.send(MEMORY_SPANS // 10)
        seen.append(tee.resident_mib())
    print("\nresident MiB, before and after each 100,000 spans: " + " ".join(f"{one:.0f}" for one in seen))
    grown = max(seen[2:]) - max(seen[:2])
    yield grown <= GROWTH_MIB, f"memory grows by {grown:.0f} MiB from 100,000 to 1,000,000 spans (at most {GROWTH_MIB})"


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", default=[], metavar="TEXT", help="only these rows: http, 'grpc 512', gzip …"
    )
    parser.add_argument("--quick", action="store_true", help="fewer and shorter blocks, for a quick look")
    parser.add_argument("--rounds", type=int, default=6, help="rounds, each with new processes and a block per row")
    parser.add_argument("--spans", type=int, default=40_000, help="spans per block")
    parser.add_argument("--memory", action="store_true", help="also send a million spans, and record the tee's memory")
    arguments = parser.parse_args()
    arguments.shapes = [one for one in SHAPES if all(text in " ".join(str(one).split()) for text in arguments.only)]
    if arguments.quick:
        arguments.rounds, arguments.spans = 2, 15_000
    return arguments


if __name__ == "__main__":
    sys.exit(main())
