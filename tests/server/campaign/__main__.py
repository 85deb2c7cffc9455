"""A fault campaign by hand; ends with 1 if anything was lost, or anybody hung."""

import argparse
import sys
import time
from pathlib import Path

from tests.server.campaign.plan import KINDS
from tests.server.campaign.rounds import ROUNDS_A_WORLD, Failed, Totals, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.server.campaign", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS_A_WORLD)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where data is kept while it runs, and if something fails")
    parser.add_argument("--quiet", action="store_true", help="no line for each round")
    parser.add_argument("--any-log", action="store_true", help="let the server's log have tracebacks")
    parser.add_argument("--only", action="append", choices=KINDS, help="leave out what is of other kinds; repeatable")
    arguments = parser.parse_args()
    print(f"{arguments.rounds} rounds from seed {arguments.seed}", flush=True)
    totals, started = Totals(), time.monotonic()

    def tell(line: str) -> None:
        if not arguments.quiet:
            print(line, flush=True)

    try:
        run(
            arguments.seed,
            arguments.rounds,
            totals,
            folder=arguments.folder,
            tell=tell,
            kinds=arguments.only or KINDS,
            reads_log=not arguments.any_log,
        )
    except Failed as problem:
        print(f"FAILED {problem}", flush=True)
        return 1
    finally:
        print(f"{totals}\n  in {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
