"""Kafka: one broker that is its own controller, fetched once from Maven into the cache and run on free loopback ports.

It supports the group protocol of KIP-848 and the classic one, and has two listeners. Clients of the plain one may do anything.
The other one has names and passwords (SASL/PLAIN) or tokens, and its client ``reader`` has the permissions of ``allow``.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.server import Server, absent_commands, cache_dir, free_port

__all__ = ["PASSWORD", "READER", "VERSION", "Kafka", "install", "installed", "obstacle", "running"]

VERSION = "4.1.0"
READER, PASSWORD = "reader", "reader-password"
POM = Path(__file__).with_name("kafka_pom.xml")
READY_WITHIN_S = 90.0  # 4 s on a quiet machine
JAVA = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


class Kafka:
    """A broker that may be stopped and started again with its data.

    Args:
        folder: for its data and its output.
        properties: further properties of the broker, in addition to the ones it needs here.

    Attributes:
        brokers: ``bootstrap.servers`` of the plain listener.
        with_password: of the other one.
    """

    def __init__(self, folder: Path, properties: Mapping[str, str]) -> None:
        plain, with_password, controller = (free_port() for _ in range(3))
        self.brokers = f"127.0.0.1:{plain}"
        self.with_password = f"127.0.0.1:{with_password}"
        self._folder = folder
        self._properties = folder / "server.properties"
        result = {**_properties(folder, plain, with_password, controller), **properties}
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in result.items()), encoding="utf-8")
        formatted = ["kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER, "-c", str(self._properties)]
        subprocess.run(_java(*formatted), cwd=folder, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self._server: Server | None = None

    @property
    def pid(self) -> int:
        """Process id of its keeper; Kafka is the keeper's child."""
        assert self._server is not None
        return self._server.pid

    def start(self) -> None:
        """Start it, on the ports that it had before; returns when it answers."""
        self._server = Server(
            _java("kafka.Kafka", str(self._properties)),
            environment={},
            folder=self._folder,
            ready=self._answers,
            deadline_s=READY_WITHIN_S,
        )

    def stop(self) -> None:
        """End it; returns when it is gone."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def create(self, topic: str, partitions: int, **configuration: str) -> None:
        """Create a topic and wait until it is there.

        Args:
            configuration: of the topic, ``retention_ms="1000"``: a dot for each underline.
        """
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import NewTopic

        values = {name.replace("_", "."): value for name, value in configuration.items()}
        wanted = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=values)
        admin = self._admin()  # its open requests end with it
        for created in admin.create_topics([wanted]).values():
            try:
                created.result(30)
            except KafkaException as error:  # asked again by the client, as the first answer was late
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

    def delete_all(self, topic: str, partitions: int) -> None:
        """Delete the messages of a topic, as its retention would."""
        from confluent_kafka import OFFSET_END, TopicPartition

        admin = self._admin()
        everything = [TopicPartition(topic, number, OFFSET_END) for number in range(partitions)]
        for deleted in admin.delete_records(everything).values():
            deleted.result(30)

    def allow(self, operation: str, *, topic: str = "", group: str = "") -> None:
        """Let ``READER`` do something with a topic or a group: ``READ``, ``DESCRIBE``."""
        from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

        of_what = (ResourceType.TOPIC, topic) if topic else (ResourceType.GROUP, group)
        rights = AclOperation[operation], AclPermissionType.ALLOW
        binding = AclBinding(*of_what, ResourcePatternType.LITERAL, f"User:{READER}", "*", *rights)
        admin = self._admin()
        for created in admin.create_acls([binding]).values():
            created.result(30)

    def _admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.brokers, "log_level": 0})

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException

        try:
            return bool(self._admin().list_topics(timeout=1).brokers)
        except KafkaException:
            return False


def installed() -> bool:
    """Whether the jars are in the cache and there is a Java to run them."""
    return _libraries().is_dir() and shutil.which("java") is not None


def obstacle() -> str | None:
    """Return why Kafka cannot be installed here; None when it can, or already is."""
    return None if installed() else absent_commands("java", "mvn")


def install() -> None:
    """Fetch the jars (some seconds, 43 MB) unless they are there.

    Raises:
        RuntimeError: there is no Java or no Maven.
        subprocess.CalledProcessError: Maven failed and has printed the reason.
    """
    if reason := obstacle():
        raise RuntimeError(reason)
    if installed():
        return
    folder, half = _libraries().parent, _libraries().with_name("half")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(half, ignore_errors=True)
    asked = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={half}"]
    subprocess.run(["mvn", "-q", "-B", "-f", str(POM), *asked], cwd=folder, check=True, stdin=subprocess.DEVNULL)
    half.replace(_libraries())  # a partial copy is never taken for a whole one


@contextmanager
def running(folder: Path, properties: Mapping[str, str] | None = None) -> Iterator[Kafka]:
    """Run Kafka; its data ends with the block."""
    broker = Kafka(folder, properties or {})
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def _properties(folder: Path, plain: int, with_password: int, controller: int) -> dict[str, str]:
    listeners = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{with_password}"
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    token = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{login} required user_{READER}="{PASSWORD}";',
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f"{token} required;",  # takes unsigned tokens
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "log.dirs": str(folder / "data"),
        "num.partitions": "4",
        "auto.create.topics.enable": "false",
        "message.max.bytes": "16000000",
        **dict.fromkeys(_ONE_OF_EACH, "1"),
        **_GROUPS,
    }


_ONE_OF_EACH = (
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
)
"""There is one broker."""
_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.assignment.interval.ms": "0",
}
"""A lost member is detected after 6 s; members that join or leave are announced immediately."""


def _java(*arguments: str) -> list[str]:
    return ["java", *JAVA, "-cp", f"{_libraries()}/*", *arguments]


def _libraries() -> Path:
    return cache_dir() / f"kafka-{VERSION}" / "lib"
