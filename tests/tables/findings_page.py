"""The kinds of findings in `docs/findings.md`, made of `muster.tables.findings.kinds`.

`python -m tests.tables.findings_page docs/findings.md` brings the page up to date; a test compares it.
"""

import sys
from pathlib import Path

from muster.tables.findings.finding import Kind, Threshold
from muster.tables.findings.kinds import KINDS
from muster.tables.sql.sentences import DAY_MS, HOUR_MS, MINUTE_MS

MARK = "## The kinds\n"


def kinds_of(page: str) -> str:
    """The page with the kinds that there are now."""
    return page[: page.index(MARK)] + MARK + "".join(_section(kind) for kind in KINDS.values())


def _section(kind: Kind) -> str:
    title = f"\n### `{kind.name}`: {' or '.join(kind.severities)}\n\n"
    tables = ", ".join(f"`{name}`" for name in kind.needs)
    told = f"Raised when {kind.when}.\n\n*Found in* {tables}. *What to do:* {kind.what_to_do}\n"
    if not kind.thresholds:
        return title + told
    lines = [f"| {_shown(each)} | {each.what} | {each.why} |\n" for each in kind.thresholds]
    return title + told + "\n| threshold | of | because |\n|---|---|---|\n" + "".join(lines)


def _shown(threshold: Threshold) -> str:
    if not threshold.is_ms:
        return str(threshold.value)
    for unit_ms, unit in ((DAY_MS, "d"), (HOUR_MS, "h"), (MINUTE_MS, "min")):
        if threshold.value % unit_ms == 0:
            return f"{threshold.value // unit_ms} {unit}"
    raise ValueError(threshold)


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(kinds_of(file.read_text(encoding="utf-8")), encoding="utf-8")
