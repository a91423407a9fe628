"""Runs a pipeline under spark-submit, which chooses the cluster. The arguments are those of `shardq pipeline`.

    spark-submit --master spark://host:7077 examples/pipeline.py load hdfs:///day.parquet jobs --key tenant
    spark-submit --master yarn examples/pipeline.py archive hdfs:///archive jobs --json

Executors need shardq, too: installed, or as a zip with --py-files.
"""

import sys

from shardq.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["pipeline", *(sys.argv[1:] or ["--help"])]))
