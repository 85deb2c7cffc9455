"""One task: ranges of some partitions of the offsets topic to history, winners and a report. No Spark in here.

    for each partition          survey its headers, then read its records once, in log order
      history    every record   -> Parquet files under <tables>/commits, group_records, markers
      open       commits whose transaction the range does not end -> staged `open_commits`
      winners    the newest visible record of each key -> staged `winners_commits`, `winners_groups`; without history
                 also all commits of transactions that have ended, whatever became of them
      other replicas            -> records that the leading one's cleaner has removed, history only

The newest record is taken by log order among plain records and those of transactions that the range has committed. So a
deletion that stands before a commit does not delete it, wherever the marker stands.
"""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from muster.codec.columns.chunks import Scratch
from muster.errors import BadInput
from muster.pipeline.extract_fetch import fetch_to_segments, is_here
from muster.pipeline.extract_files import ProgressFile
from muster.pipeline.extract_partition import PartitionExtract
from muster.pipeline.extract_rows import Outputs
from muster.pipeline.model import ExtractContext, Extracted, PartitionReport, PartitionWork, SegmentFiles


def extract(works: Sequence[PartitionWork], context: ExtractContext) -> Extracted:
    """Read these ranges and write what is in them; run again, it writes other files and reports the same.

    Raises `BadInput` for a partition that is not there and `OSError` for a disk that fails; files written until then
    are nobody's. Damage in a log is no error: it is in the report.
    """
    progress = ProgressFile(context.staging)
    scratch = Scratch()
    outputs = Outputs(context)
    try:
        reports = [_extract_partition(work, context, outputs, scratch, progress) for work in works]
        files = outputs.close()
    except BaseException:
        outputs.abandon()
        raise
    finally:
        progress.flush()
    return Extracted(tuple(files), tuple(reports))


def _extract_partition(
    work: PartitionWork, context: ExtractContext, outputs: Outputs, scratch: Scratch, progress: ProgressFile
) -> PartitionReport:
    with ExitStack() as stack:
        folder = Path(".") if is_here(work.source) else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        source = fetch_to_segments(work, folder)
        return PartitionExtract(work, _checked(source), context, outputs, scratch, progress.add).run()


def _checked(source: SegmentFiles) -> SegmentFiles:
    for directory in source.directories:
        if not Path(directory).is_dir():
            raise BadInput(f"{directory} is not there any more, or no directory. Was the log moved while it was read?")
    return source
