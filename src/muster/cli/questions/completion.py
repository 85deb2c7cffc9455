"""Names of groups for the shell, from the tables that the command line or the environment names."""

import os
from typing import Any

MOST_NAMES = 200


def complete_group(ctx: Any, incomplete: str) -> list[str]:
    """Groups that begin like this; none where anything is amiss: an error would stand in the line being typed."""
    try:
        from muster.tables.reading import open_tables

        address = ctx.params.get("tables") or os.environ.get("MUSTER_TABLES")
        if not address:
            return []
        with open_tables(address) as tables:
            names = tables.asked(
                f"SELECT group_id FROM {tables.relation('groups')} g WHERE starts_with(group_id, ?) "
                f"ORDER BY group_id LIMIT {MOST_NAMES}",
                [incomplete],
            )
    except Exception:
        return []
    return [name for (name,) in names if name.isprintable()]
