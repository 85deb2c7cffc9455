#!/bin/sh
# The job through spark-submit, for clusters that are entered that way alone.
#
#   sh examples/spark_submit.sh spark://host:7077 kafka://broker:9092 s3://bucket/tables
#   sh examples/spark_submit.sh yarn              kafka://broker:9092 s3://bucket/tables
#
# The driver runs here (client mode) in an environment with muster[pipeline]; workers get the archive.
set -eu
master=$1 source=$2 tables=$3
archive=${ARCHIVE:-muster-workers.tar.gz}

test -e "$archive" || muster pipeline pack "$archive" >/dev/null
script=$(mktemp)
trap 'rm -f "$script"' EXIT
echo 'import sys; from muster.cli.main import main; sys.exit(main(sys.argv[1:]))' >"$script"

PYSPARK_DRIVER_PYTHON=$(command -v python3) \
PYSPARK_PYTHON=./muster-workers/bin/python \
spark-submit --master "$master" --deploy-mode client --name muster \
  --archives "$archive#muster-workers" \
  "$script" pipeline run --master "$master" --source "$source" --out "$tables"
