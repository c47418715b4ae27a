"""Install the servers the tests need, or run one to look at: ``python -m tests.servers install | phoenix``."""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path

from tests.servers import phoenix


def main(arguments: list[str]) -> int:
    """Return 0 when the command was known and done."""
    commands = {"install": _install, "phoenix": _phoenix}
    if len(arguments) != 1 or arguments[0] not in commands:
        print(f"usage: python -m tests.servers {' | '.join(commands)}", file=sys.stderr)
        return 2
    commands[arguments[0]]()
    return 0


def _install() -> None:
    state = "cached" if phoenix.installed() else "installing, some minutes"
    print(f"phoenix {phoenix.VERSION}: {state}", flush=True)
    phoenix.install()


def _phoenix() -> None:
    with tempfile.TemporaryDirectory() as folder, phoenix.running(Path(folder)) as server:
        print(
            f"page {server.url}   OTLP http {server.traces_endpoint}   grpc {server.grpc}   Ctrl-C stops it", flush=True
        )
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print("stopped")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
