"""An Airflow DAG: the tables of a live cluster are brought up to date every hour.

A run takes up where the last whole one ended: a retry or a skipped hour loses nothing. Of two at once one is refused,
hence `max_active_runs=1`. Airflow's workers need `pip install 'muster[pipeline]'` and Java 17 or 21; the cluster's get
the archive of `muster pipeline pack`. Exit code 4 says that something in the log could not be read: the tables are
published, and the task's log has file and byte.
"""

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

MASTER = "spark://spark-master:7077"
SOURCE = "kafka://broker:9092"
TABLES = "s3://warehouse/consumer-groups"
ARCHIVE = "/opt/muster/muster-workers.tar.gz"

with DAG(
    "consumer_groups",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=5)},
):
    BashOperator(
        task_id="update_tables",
        bash_command=f"""
            muster pipeline run --master {MASTER} --source {SOURCE} --out {TABLES} --json \\
              --command-config /etc/muster/client.properties \\
              --conf spark.archives={ARCHIVE}#muster-workers \\
              --conf spark.pyspark.python=./muster-workers/bin/python || test $? -eq 4
        """,
        execution_timeout=timedelta(minutes=50),
    )
