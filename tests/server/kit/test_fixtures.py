"""The fixtures as a user's tests have them, in a run of pytest of their own."""

import subprocess
import sys
from pathlib import Path

TESTS = """
import pytest

seen = {}

def test_one(muster_broker, muster_module_broker, muster_fresh_broker):
    brokers = [muster_broker, muster_module_broker, muster_fresh_broker]
    assert len({broker.port for broker in brokers}) == 3
    for broker in brokers:
        broker.seed_records("left", "x")
    seen["ports"] = [broker.port for broker in brokers]

def test_two(muster_broker, muster_module_broker, muster_fresh_broker):
    brokers = [muster_broker, muster_module_broker, muster_fresh_broker]
    assert [broker.port for broker in brokers] == seen["ports"]
    assert ["left" in broker.topics() for broker in brokers] == [True, True, False]

def test_many(muster_brokers):
    one, other = muster_brokers(num_partitions=3), muster_brokers()
    one.seed_records("orders", "x")
    assert (one.topics()["orders"].partitions, other.topics()) == (3, {})

def test_that_fails(muster_broker, muster_fresh_broker, muster_brokers):
    muster_broker.create_topic("told")
    muster_brokers().create_topic("told-too")
    assert False, "on purpose"
"""
LATER = """
def test_three(muster_broker, muster_module_broker, muster_fresh_broker):
    brokers = [muster_broker, muster_module_broker, muster_fresh_broker]
    assert ["left" in broker.topics() for broker in brokers] == [True, False, False]
"""


def test_scopes_a_factory_and_the_log_of_a_test_that_fails(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(TESTS)
    (tmp_path / "test_b.py").write_text(LATER)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert "1 failed, 4 passed" in run.stdout, run.stdout + run.stderr
    assert "FAILED test_a.py::test_that_fails" in run.stdout
    said = run.stdout.split("on purpose", 1)[1]
    assert said.count("Log of the broker at port") == 3  # each once
    assert "topic told: created" in said
    assert "topic told-too: created" in said
    assert "topic left: created" not in said  # another test's
