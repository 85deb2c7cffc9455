"""Run published suites on Kafka and on muster, and compare: `python -m tests.suites [NAME ...]`, or `make suites`.

Ends with 1 if anything passes on Kafka and not on muster.
"""

import sys
from collections.abc import Sequence

from tests.suites.compared import compared
from tests.suites.published import SUITES


def main(names: Sequence[str]) -> int:
    unknown = set(names) - set(SUITES)
    if unknown:
        sys.exit(f"python -m tests.suites [{' | '.join(SUITES)}]: what is '{' '.join(unknown)}'?")
    has_failed = False
    for name in names or SUITES:
        comparison = compared(SUITES[name])
        print(f"\n{name}: on Kafka, on muster\n  " + "\n  ".join(comparison.lines()))
        print(comparison.summary())
        for problem in comparison.problems():
            has_failed = True
            print(f"passes on Kafka, not on muster: {problem}")
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
