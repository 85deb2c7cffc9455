"""A crash at every step of a transaction's end, and the start behind it: committed or aborted, never both or neither.

In a thread a crash is a power cut: what was not synced is gone. A process is killed.
"""

import contextlib

import pytest

from muster.broker import Broker
from muster.server.transactions.steps import Step
from tests.server.raw import Raw
from tests.server.transactions.talking import FLOWS, Producer, committed_values

TOPIC, GROUP = "orders", "app"


def crash_at(broker: Broker, step: Step, producer: Producer, *, commit: bool) -> bool | None:
    """End a transaction, with a crash on the way; the answer, or None if none came before the connection was cut."""
    fault = broker.faults.crash_at(step)
    with contextlib.suppress(EOFError, OSError):
        answered = producer.end(commit=commit) == 0
        while fault.met == 0:
            pass
        return answered
    return None


def offered(broker: Broker, version: int) -> Producer:
    """A producer with a transaction before, and one that is open: records in two partitions, and an offset."""
    broker.create_topic(TOPIC, partitions=2)
    producer = Producer(Raw((broker.host, broker.port)), "worker-1", version).begin()
    producer.send(TOPIC, 0, "before")
    assert producer.commit_offset(GROUP, TOPIC, 0, 1) == 0
    assert producer.end(commit=True) == 0
    producer.send(TOPIC, 0, "a")
    producer.send(TOPIC, 1, "b")
    while (error := producer.commit_offset(GROUP, TOPIC, 0, 2)) == 51:
        pass
    assert error == 0
    return producer


def resolved(broker: Broker) -> str:
    """How the transaction has ended. It is not open: whoever comes next has it aborted."""
    with Raw((broker.host, broker.port)) as raw:
        state = broker.transactions()["worker-1"].state
        if state == "Ongoing":
            Producer(raw, "worker-1", 2).begin()
        values = committed_values(raw, TOPIC, 0), committed_values(raw, TOPIC, 1)
        offset = broker.committed(GROUP)[TOPIC, 0]
        told = {(("before", "a"), ("b",), 2): "committed", (("before",), (), 1): "aborted"}
        return told[(*map(tuple, values), offset)]  # type: ignore[index]


def check(broker: Broker, step: Step, version: int, *, commit: bool) -> None:
    producer = offered(broker, version)
    answered = crash_at(broker, step, producer, commit=commit)
    broker.kill_and_restart()
    state = broker.transactions()["worker-1"].state
    assert not state.startswith("Prepare"), "carried out before clients are let in"
    ended = resolved(broker)
    is_decided = step is not Step.BEFORE_PREPARE
    assert ended == ("committed" if commit and is_decided else "aborted")
    if answered:
        assert is_decided
    with Raw((broker.host, broker.port)) as raw:
        following = Producer(raw, "worker-1", version).begin()
        following.send(TOPIC, 0, "c")
        assert following.end(commit=True) == 0
        while following.state().startswith("Prepare"):
            pass
        assert committed_values(raw, TOPIC, 0)[-1] == "c"


@pytest.mark.parametrize("flow", FLOWS.values(), ids=FLOWS.keys())
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("step", list(Step))
def test_a_power_cut_at_every_step(step: Step, commit: bool, flow: int) -> None:
    with Broker(muster_flush="always", transaction_state_log_num_partitions=2) as broker:
        check(broker, step, flow, commit=commit)


@pytest.mark.parametrize(
    "step", [Step.PREPARED, *(pytest.param(step, marks=pytest.mark.long) for step in Step if step is not Step.PREPARED)]
)
def test_a_process_that_is_killed_at_every_step(step: Step) -> None:
    settings = {"muster_flush": "os", "transaction_state_log_num_partitions": 2}
    with Broker(process=True, **settings) as broker:
        producer = offered(broker, 2)
        broker.faults.crash_at(step)
        with contextlib.suppress(EOFError, OSError):
            producer.end(commit=True)
            while True:
                producer.raw.ask(18, 0)
        broker.kill_and_restart()
        assert not broker.transactions()["worker-1"].state.startswith("Prepare")
        assert resolved(broker) == ("aborted" if step is Step.BEFORE_PREPARE else "committed")
