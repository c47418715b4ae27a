"""Fixtures every test may use: the real servers. The trace stores run once per session, the others when a test starts them."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings
from tests.servers import alertmanager as alertmanager_server
from tests.servers import chromium as chromium_server
from tests.servers import collector as collector_server
from tests.servers import helm as helm_server
from tests.servers import jaeger as jaeger_server
from tests.servers import kafka as kafka_server
from tests.servers import kubernetes as kubernetes_schemas
from tests.servers import node as node_application
from tests.servers import phoenix as phoenix_server
from tests.servers import prometheus as prometheus_server
from tests.servers import zipkin as zipkin_server

from spanscore.core import log

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Begun in the background, by a shell that ignores it there: the processes that tests interrupt would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The width and the colours of tables must not depend on the terminal; tests about them set their own.
os.environ["COLUMNS"] = "110"
for name in ("FORCE_COLOR", "NO_COLOR", "PY_COLORS", "GITHUB_ACTIONS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(name, None)

# Python warns of each fork beside threads from 3.12 on, on stderr, which tests of forking programs compare.
os.environ["PYTHONWARNINGS"] = "ignore:This process:DeprecationWarning"
# Each client of a judge reads the machine's 140 authorities, 20 ms of CPU time; tests reach servers on loopback only.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).parent / "data" / "authority.pem")

settings.register_profile("untimed", deadline=None)  # no test asserts on the clock of a busy machine
settings.load_profile("untimed")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect no garbage while tests are imported, and leave modules and tests out of later collections."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(autouse=True)
def log_of_a_new_process() -> None:
    """Forget the logged causes, because a cause is logged once an hour."""
    log.forget_causes()


HOW = "is not installed: python -m tests.servers install"
SHARE_SERVERS = {"end_to_end", "integrations", "servers"}
LONGEST = ("servers", "cli", "kafka", "monitoring", "wiring", "capture", "safety", "service", "pipeline", "judges")
"""Folders, by the minutes that they take. The other workers would wait for one that begins such a folder last."""
assert all((Path(__file__).parent / folder).is_dir() for folder in LONGEST), "a folder of LONGEST was moved"


@pytest.hookimpl(optionalhook=True)  # runs without pytest-xdist lack this hook
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker a folder at a time, so that servers of a folder start once and no two of its tests compete."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFolder(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            folder = nodeid.split("/")[1]
            return "servers" if folder in SHARE_SERVERS else folder

        def _assign_work_unit(self, node: Any) -> None:
            for folder in reversed(LONGEST):
                if folder in self.workqueue:
                    self.workqueue.move_to_end(folder, last=False)
            super()._assign_work_unit(node)

    return ByFolder(config, log)


@pytest.fixture(scope="session")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[phoenix_server.Phoenix]:
    """A running Phoenix; without an installation skipped with a reason, a failure in CI."""
    if not phoenix_server.installed():
        _absent(f"Phoenix {phoenix_server.VERSION} {HOW}")
    with phoenix_server.running(tmp_path_factory.mktemp("phoenix")) as server:
        yield server


@pytest.fixture(scope="session")
def zipkin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipkin_server.Zipkin]:
    """A running Zipkin; without an installation skipped, a failure in CI."""
    if not zipkin_server.installed():
        _absent(f"Zipkin {zipkin_server.VERSION} {HOW}")
    with zipkin_server.running(tmp_path_factory.mktemp("zipkin")) as server:
        yield server


@pytest.fixture(scope="session")
def jaeger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[jaeger_server.Jaeger]:
    """A running Jaeger; without an installation skipped, a failure in CI."""
    if not jaeger_server.installed():
        _absent(f"Jaeger {jaeger_server.VERSION} {HOW}")
    with jaeger_server.running(tmp_path_factory.mktemp("jaeger")) as server:
        yield server


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka_server.Kafka]:
    """A running Kafka; without an installation skipped, a failure in CI."""
    if not kafka_server.installed():
        _absent(f"Kafka {kafka_server.VERSION} {HOW}")
    with kafka_server.running(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture(scope="session")
def prometheus() -> ModuleType:
    """Prometheus' module: ``with prometheus.running(folder, config, rules) as server``, ``prometheus.promtool(…)``."""
    if not prometheus_server.installed():
        _absent(f"Prometheus {HOW}")
    return prometheus_server


@pytest.fixture(scope="session")
def alertmanager() -> ModuleType:
    """Alertmanager's module: ``with alertmanager.running(folder, config) as server``, ``alertmanager.amtool(…)``."""
    if not alertmanager_server.installed():
        _absent(f"Alertmanager {HOW}")
    return alertmanager_server


@pytest.fixture(scope="session")
def collector() -> ModuleType:
    """The Collector's module: ``with collector.running(folder, config) as server``, ``collector.validate(config)``."""
    if not collector_server.installed():
        _absent(f"the Collector of {collector_server.MANIFEST.name} {HOW}")
    return collector_server


@pytest.fixture(scope="session")
def helm() -> ModuleType:
    """Helm: ``helm.run("lint", …)``; without an installation skipped, a failure in CI."""
    if not helm_server.installed():
        _absent(f"helm {helm_server.VERSION} {HOW}")
    return helm_server


@pytest.fixture(scope="session")
def kubernetes() -> ModuleType:
    """Kubernetes' schemas: ``kubernetes.refused(objects)``; without an installation skipped, a failure in CI."""
    if not kubernetes_schemas.installed():
        _absent(f"what validates objects of Kubernetes {kubernetes_schemas.VERSION} {HOW}")
    return kubernetes_schemas


@pytest.fixture(scope="session")
def node() -> ModuleType:
    """The application of Node: ``node.ask(question, …)``; without an installation skipped, a failure in CI."""
    if not node_application.installed():
        _absent(f"the application of Node {HOW}")
    return node_application


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium_server.Browser]:
    """A running Chromium: ``with chromium.tab() as tab``; without an installation skipped, a failure in CI."""
    if not chromium_server.installed():
        _absent(f"Chromium {HOW}")
    with chromium_server.running(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


def _absent(reason: str) -> None:
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(reason)
    pytest.skip(reason)
