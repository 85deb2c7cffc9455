"""One suite on a real Kafka and on muster, with the same settings."""

from muster.broker import Broker
from tests.kit.kafka import KafkaBroker, free_ports, require_kafka
from tests.suites.outcomes import Comparison
from tests.suites.published import Suite

SETTINGS = {
    "node.id": "0",  # kafka-python's tests name it
    "num.partitions": "4",
    "auto.create.topics.enable": "true",
    "group.min.session.timeout.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
}
FEATURES = {"group.version": 0}
"""muster has no groups of the consumer protocol, and says so with this; a Kafka that has none says the same."""


def compared(suite: Suite) -> Comparison:
    with KafkaBroker(require_kafka(), SETTINGS, features=FEATURES) as kafka:
        theirs = suite.run(kafka.bootstrap)
    listener = f"PLAINTEXT://127.0.0.1:{free_ports(1)[0]}"
    named = {"listeners": listener, "advertised.listeners": listener}  # as the kit has Kafka's: a test looks at them
    with Broker(process=True, settings=SETTINGS | named) as muster:
        ours = suite.run(muster.bootstrap_servers)
    return Comparison(theirs, ours, suite.hidden)
