"""Start Phoenix on loopback only. Runs in Phoenix's own environment and imports nothing of ours.

Phoenix binds its gRPC port to ``[::]``, whatever PHOENIX_HOST is.
"""

from __future__ import annotations

import sys

import grpc.aio._server


def main() -> None:
    """Serve until terminated."""
    _bind_to_loopback()
    sys.argv = ["phoenix", "serve"]
    from phoenix.server.main import main as serve

    serve()


def _bind_to_loopback() -> None:
    bind = grpc.aio._server.Server.add_insecure_port

    def bind_to_loopback(self: grpc.aio._server.Server, address: str) -> int:
        return bind(self, address.replace("[::]", "127.0.0.1"))

    grpc.aio._server.Server.add_insecure_port = bind_to_loopback


if __name__ == "__main__":
    main()
