"""What docs/architecture.md says of the core is so."""

import importlib
import re
from pathlib import Path

from muster.codec.error_codes import ErrorCode
from muster.core.config import GroupConfig
from muster.core.states import LEGAL_MOVES, RULES, State
from muster.core.transactions import states as transactions

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "architecture.md").read_text(encoding="utf-8")
HOMES = {
    "partition_for": "muster.codec.partitioning",
    "Write": "muster.core.outcome",
    "Admin": "muster.core.coordinator",
    "Commits": "muster.core.offsets",
    "GroupTable": "muster.core.groups",
    "Membership": "muster.core.membership",
    "Offsets": "muster.core.offsets",
    "Rebalancing": "muster.core.rebalancing",
    "Router": "muster.core.router",
    "Seats": "muster.core.seats",
    "Transaction": "muster.core.transactions.transactions",
    "TransactionAdmin": "muster.core.transactions.admin",
    "TransactionCoordinator": "muster.core.transactions.coordinator",
    "TransactionTable": "muster.core.transactions.transactions",
}


def diagram() -> str:
    """The legal moves, a line for each state."""
    width = max(len(state.value) for state in LEGAL_MOVES)
    return "\n".join(
        f"{came_from.value:>{width}}  ->  {', '.join(to.value for to in moves)}"
        for came_from, moves in LEGAL_MOVES.items()
    )


def answers() -> str:
    """What a request hears in each state, a line for each request."""
    rows = [("Request", "of", *State), ("---",) * (2 + len(State))]
    for request, rule in RULES:
        cells = [f"`{cell.name}`" if isinstance(cell, ErrorCode) else cell.value for cell in rule[1:]]
        rows.append((request.__name__, rule.who, *cells))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows).replace(" --- ", "---")


def moves_of_transactions() -> str:
    return "\n".join(
        f"{came_from.kafka_name:>14}  ->  {', '.join(to.kafka_name for to in moves)}"
        for came_from, moves in transactions.LEGAL_MOVES.items()
    )


def answers_of_transactions() -> str:
    """What a request hears of a transactional id that is not known, and in each state."""
    names = [state.kafka_name for state in transactions.TransactionState]
    rows = [("Request", "of", "unknown", *names), ("---",) * (3 + len(names))]
    for rule in transactions.RULES:
        cells = [f"`{cell.name}`" if isinstance(cell, ErrorCode) else cell.value for cell in rule[2:]]
        rows.append((rule.request, rule.who, *cells))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows).replace(" --- ", "---")


def test_the_states_of_transactions_are_drawn_from_their_tables() -> None:
    assert moves_of_transactions() in TEXT
    assert answers_of_transactions() in TEXT


def test_the_table_of_answers_is_drawn_from_the_rules() -> None:
    assert answers() in TEXT


def test_the_diagram_is_drawn_from_the_table_of_moves() -> None:
    assert diagram() in TEXT


def test_kafkas_names_lead_somewhere() -> None:
    rows = re.findall(r"^\| `\w+\.\w+` \| `([\w.]+)` \|$", TEXT, re.MULTILINE)
    assert len(rows) > 20
    for name in rows:
        first, *rest = name.split(".")
        found = getattr(importlib.import_module(HOMES[first]), first)
        for part in rest:
            found = getattr(found, part)
        assert callable(found), name


def test_every_setting_is_documented_with_its_default() -> None:
    page = (DOCS / "configuration.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z.]+)` \| ([^|]+) \|", page, re.M))
    defaults = GroupConfig()
    for kafka_name, field in GroupConfig.names().items():
        default = getattr(defaults, field)
        assert rows.get(kafka_name, "").strip() == ("newest" if default is None else str(default)), kafka_name
