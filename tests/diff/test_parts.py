"""The parts of the comparison, each on its own; and that it can fail."""

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.diff.cells import POSSIBLE, possible, reached, with_tables
from tests.diff.collection import daily, everything
from tests.diff.compare import compare
from tests.diff.core_target import play_to_core
from tests.diff.generate import without_arbitrary_leaders
from tests.diff.handwritten import handwritten
from tests.diff.messages import APIS, as_version, decode_response, encode_request
from tests.diff.on_purpose import RULES
from tests.diff.requests import Cast, told
from tests.diff.script import VERBS, BadScript, parse, parse_step, script
from tests.diff.walks import Walk

DOCS = Path(__file__).parents[2] / "docs"

TWO_MEMBERS = script(
    "two members",
    [
        "a join.9 g",
        "a join.9 g",
        "a sync.5 g assign=a:x01",
        "b join.9 g",
        "b join.9 g",
        "a join.9 g",
        "a commit.9 g generation=0 offsets=t0/0:1",
        "z describe.5 g",
    ],
)


# The comparison can fail.


def test_nothing_differs_from_itself() -> None:
    assert compare(play_to_core(TWO_MEMBERS), play_to_core(TWO_MEMBERS)) is None


def test_another_error_code_is_reported_where_it_was_given() -> None:
    kafka, core = play_to_core(TWO_MEMBERS), play_to_core(TWO_MEMBERS)
    core.moments[6].answers[6]["topics"][0]["partitions"][0]["error_code"] = 25
    difference = compare(kafka, core)
    assert difference is not None
    assert difference.report() == REPORT


REPORT = """\
script two members
  0  a join.9 g
  1  a join.9 g
  2  a sync.5 g assign=a:x01
  3  b join.9 g
  4  b join.9 g
  5  a join.9 g
  6  a commit.9 g generation=0 offsets=t0/0:1
  -> after step 6, the answer to step 6: a commit.9 g generation=0 offsets=t0/0:1
     topics[0].partitions[0].error_code
       kafka  ILLEGAL_GENERATION(22)
        core  UNKNOWN_MEMBER_ID(25)"""


def test_an_answer_that_did_not_come_is_reported() -> None:
    kafka, core = play_to_core(TWO_MEMBERS), play_to_core(TWO_MEMBERS)
    del core.moments[5].answers[4]
    core.moments[5].parked = (4,)
    difference = compare(kafka, core)
    assert difference is not None
    assert difference.where == "after step 5, the answer to step 4: b join.9 g"
    assert difference.ours == "no answer"


def test_a_request_that_waits_longer_is_reported() -> None:
    kafka, core = play_to_core(TWO_MEMBERS), play_to_core(TWO_MEMBERS)
    core.moments[7].parked = (4,)
    difference = compare(kafka, core)
    assert difference is not None
    assert difference.where == "after step 7, who still waits"


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (lambda records: records.pop(), "record 1"),
        (lambda records: records[1].update(generation=9), "record 1.generation"),
        (lambda records: records[1]["members"][0].update(assignment="02"), "record 1.members[0].assignment"),
        (lambda records: records[0].update(version=4), "record 0.version"),
    ],
)
def test_another_record_is_reported(change: Any, seen: str) -> None:
    kafka, core = play_to_core(TWO_MEMBERS), play_to_core(TWO_MEMBERS)
    core.records = copy.deepcopy(core.records)
    change(core.records["g"])
    difference = compare(kafka, core)
    assert difference is not None
    assert difference.where == "the records of group g"
    assert f"     {seen}\n" in difference.report()


def test_names_stand_for_ids() -> None:
    """An id goes by the client that was given it, from then on; before that by the client it was made for."""
    cast = Cast("run7.")
    join = parse_step("a join.3 g")
    first, second = (f"a-{digit * 8}-0000-4000-8000-{digit * 12}" for digit in "12")
    cast.learn(join, {"error_code": 0, "member_id": first, "generation_id": 1}, 3)
    cast.learn(join, {"error_code": 79, "member_id": second, "generation_id": -1}, 5)
    assert [cast.member_name(each) for each in (first, second, "", "ghost")] == ["a", "a#2", "", "ghost"]
    assert cast.as_of(2).member_name(first) == "a-?"
    assert cast.as_of(4).member_name(second) == "a-?"
    assert cast.client("a").generation == 1
    assert cast.group_name("run7.g") == "g"
    assert cast.group_name("run70.g") is None


def test_a_list_tells_of_nobody_else() -> None:
    listed = [{"group_id": each, "protocol_type": ""} for each in ("", "run7.g", "run70.g", "other")]
    heard = told(parse_step("z list.0"), {"error_code": 0, "groups": listed}, Cast("run7."))
    assert heard == {"error_code": 0, "groups": [{"group_id": "g", "protocol_type": ""}]}


def test_only_the_silence_of_a_rule_is_forgiven() -> None:
    leaving = script(
        "leaving",
        [
            "a join.3 g",
            "a sync.2 g assign=a:x01",
            "b join.3 g",
            "a join.3 g",
            "b sync.2 g",
            "b leave.2 g",
            "a heartbeat.2 g",
        ],
    )
    kafka, core = play_to_core(leaving), play_to_core(leaving)
    assert core.moments[5].answers[4] == {"throttle_time_ms": 0, "error_code": 25, "assignment": b""}
    del kafka.moments[5].answers[4]
    kafka.moments[5].parked = kafka.moments[6].parked = (4,)
    forgiven: set[str] = set()
    assert compare(kafka, core, forgiven) is None
    assert forgiven == {RULES[0].name}
    core.moments[5].answers[4]["error_code"] = 27
    assert compare(kafka, core) is not None


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_what_is_forgiven_is_documented(rule: Any) -> None:
    page = (DOCS / "protocol.md").read_text(encoding="utf-8")
    section = page.split("## Where we differ from Kafka on purpose\n")[1].split("\n## ")[0]
    assert rule.documented in " ".join(section.split())


# The scripts.


def test_a_script_is_read_back_as_it_was_written() -> None:
    scripts = handwritten()
    assert len(scripts) > 100
    for each in scripts:
        assert list(parse(f"\n{each}")) == [each]


def test_no_two_scripts_have_the_same_name() -> None:
    names = [each.name for each in daily()]
    assert len(names) == len(set(names))
    assert len(names) > 500


@pytest.mark.parametrize(
    "line",
    [
        "a jion.9 g",
        "a join.10 g",
        "a commit.1 g offsets=t0/0:1",
        "a join.4 g instance=ia",
        "a heartbeat.4 g offsets=t0/0",
        "a heartbeat.4 g,h",
        "a commit.5 g offsets=t0/0:1@3",
        "a commit.5 g offsets=t0/0:1 retention=7",
        "a fetch.1 g offsets=all",
    ],
)
def test_a_step_that_means_nothing_is_refused(line: str) -> None:
    with pytest.raises(BadScript):
        parse_step(line)


def test_the_same_seed_walks_the_same_way() -> None:
    assert Walk(7).script() == Walk(7).script()
    assert Walk(7).script() != Walk(8).script()


def test_a_script_ends_before_a_leader_is_chosen_by_chance() -> None:
    lines = ["a join.3 g", "b join.3 g", "c join.3 g", "a leave.2 g members=!ghost", "a join.3 g"]
    led = script("led", [*lines, "b join.3 g", "c join.3 g protocols=range:t1", "b join.3 g", "a join.3 g"])
    assert without_arbitrary_leaders(led) == led
    left = script("left", [*lines, "x leave.3 g members=a", "b join.3 g", "c join.3 g", "z describe.5 g"])
    assert without_arbitrary_leaders(left).steps == left.steps[:7]


# What they reach.


def test_every_answer_that_can_be_had_is_had() -> None:
    found = reached(daily())
    assert found == possible()
    page = (DOCS / "differential.md").read_text(encoding="utf-8")
    assert page == with_tables(page, found), "run: python -m tests.diff.cells docs/differential.md"


@pytest.mark.long
def test_all_scripts_reach_no_more_than_those_of_a_day() -> None:
    assert reached(everything()) == possible()


def test_every_version_of_every_request_is_sent() -> None:
    sent = {(step.verb, step.version) for each in daily() for step in each.steps if step.verb in POSSIBLE}
    for verb in POSSIBLE:
        versions = range(VERBS[verb].first_version, APIS[VERBS[verb].api].max_version + 1)
        missing = [number for number in versions if (verb, number) not in sent]
        assert not missing, verb


# The messages.


def test_a_frame_by_hand() -> None:
    # Laid out by hand from HeartbeatRequest.json: size, key 12, version 4, correlation id 7, client id "c" (2 bytes of
    # length even in a flexible header), no tags; then compact strings and no tags again.
    body = {"group_id": "g", "generation_id": 1, "member_id": "m", "group_instance_id": None}
    assert encode_request("Heartbeat", 4, 7, "c", body) == bytes.fromhex(
        "00000016 000c 0004 00000007 0001 63 00  02 67 00000001 02 6d 00 00".replace(" ", "")
    )
    assert decode_response("Heartbeat", 4, bytes.fromhex("00000007 00 00000000 0019 00")) == {
        "throttle_time_ms": 0,
        "error_code": 25,
    }


def test_an_older_version_hears_less() -> None:
    body = {"error_code": 0, "protocol_type": "consumer", "protocol_name": "range", "assignment": b"\1"}
    assert as_version("SyncGroup", 0, body) == {"error_code": 0, "assignment": b"\1"}
    assert as_version("SyncGroup", 5, body) == {"throttle_time_ms": 0, **body}


def test_a_field_without_a_default_must_be_given() -> None:
    with pytest.raises(KeyError):
        encode_request("Heartbeat", 0, 1, "c", {"group_id": "g", "member_id": "m"})
    with pytest.raises(KeyError):
        encode_request("OffsetCommit", 9, 1, "c", {"group_id": "g", "member_id": "m", "topics": [{"name": "t"}]})
