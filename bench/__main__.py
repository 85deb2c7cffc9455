"""`make bench`: every measurement of muster beside Kafka's own tools, in one run.

`python -m bench coordinator` measures groups beside a broker and nothing else, `python -m bench records` records and
`python -m bench transactions` transactions beside one, `python -m bench pipeline` the tables on Spark, `python -m bench
answers` pages and questions over tables of a large cluster, `python -m bench versus FOLDER` this source beside an older
one.
"""

import json
import os
import sys

from rich.console import Console
from rich.table import Table

from bench import answers, compaction, coordinator, core, disk, dump, load, pipeline, records, transactions, versus
from bench.dump import CACHE, Line


def report(title: str, lines: list[Line], kafka: Line) -> None:
    table = Table(title=title, title_justify="left")
    for heading in ("work", "seconds", "M records/s", "× kafka-dump-log", "peak RSS", ""):
        table.add_column(heading, justify="left" if heading in ("work", "") else "right")
    for line in [*lines, kafka]:
        table.add_row(
            line.work,
            f"{line.seconds:.2f}",
            f"{line.records_per_s / 1e6:.2f}",
            f"{line.records_per_s / kafka.records_per_s:.1f}",
            f"{line.peak_rss_mb:.0f} MB",
            line.note,
        )
    Console(width=110 if not sys.stdout.isatty() else None).print(table)


def sections() -> None:
    """What has no counterpart among Kafka's tools: one JSON line each, with what it measured."""
    for title, section in (
        ("the core alone, one thread", core),
        ("loading 5 M records with 1 M distinct offsets, and memory", load),
        ("the durable log: appends, and opening 5 GB", disk),
        ("compaction", compaction),
    ):
        print(f"\n{title}", flush=True)
        section.main()


def main() -> None:
    full = os.environ.get("BENCH") == "full"
    results = {}
    for count in [5_000_000, 50_000_000] if full else [5_000_000]:
        folder = dump.topic(count)
        lines = list(dump.muster(folder, count))
        kafka = dump.kafka(folder, count)
        report(f"{count:,} generated records, {_megabytes(folder)} MB, {os.cpu_count()} cores", lines, kafka)
        results[count] = [line._asdict() for line in [*lines, kafka]]
    sections()
    (CACHE / "last.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print("\nthe pipeline", flush=True)
    pipeline.main(kafka=Line(**results[5_000_000][-1]))
    print("\npages and questions", flush=True)
    answers.main(["full"] if full else [])
    print("\nthe coordinator beside a broker", flush=True)
    coordinator.main()
    print("\nrecords beside a broker", flush=True)
    records.main()
    print("\ntransactions beside a broker", flush=True)
    transactions.main()


def _megabytes(folder: os.PathLike[str]) -> int:
    return sum(entry.stat().st_size for entry in dump.Path(folder).rglob("*.log")) // 1_000_000


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["coordinator", *stages]:
            sys.exit(coordinator.main(stages))
        case ["records", *stages]:
            sys.exit(records.main(stages))
        case ["transactions"]:
            sys.exit(transactions.main())
        case ["answers", *size]:
            sys.exit(answers.main(size))
        case ["pipeline"]:
            pipeline.main()
        case ["versus", folder, *words]:
            sys.exit(versus.main([folder, *words]))
        case []:
            main()
        case unknown:
            stages = "coordinator [STAGE ...] | records [STAGE ...] | transactions"
            usage = f"python -m bench [pipeline | answers [full] | {stages} | versus FOLDER [--rounds 5] [STAGE ...]]"
            sys.exit(f"{usage}: what is '{' '.join(unknown)}'?")
