"""`shardq pipeline redrive`: move chosen dead letters back into their queue."""

from __future__ import annotations

from shardq.cli.parsing import Args, add_queue, argument, flag, takes
from shardq.cli.pipelines.stage import connecting, pipeline, started
from shardq.cli.shell import Shell

ABOUT = """Chooses dead letters of QUEUE by an SQL condition on their columns (docs/spark.md): shard_key, reason, count,
last_error, written_at, died_at, headers, payload, ... Prints how many it chooses, by reason, and changes nothing. With
--go they are moved back, at most --rate per second. If it is interrupted, run it again to move the rest."""

EXAMPLES = """  shardq pipeline redrive jobs --where "last_error like '%timed out%'"
  shardq pipeline redrive jobs --where "count < 9" --go --rate 50
  shardq pipeline redrive jobs --where "headers['kind'] = 'mail'" """


@pipeline(ABOUT, EXAMPLES.rstrip())
@takes(add_queue)
@argument("--where", metavar="SQL", default="true", help="which dead letters (all)")
@flag("rate", " (100)", default=100.0)
@argument("--go", action="store_true", help="move them; without it nothing is changed")
def run(args: Args, shell: Shell) -> None:
    """Choose the dead letters, print how many, move them."""
    queue, _ = shell.existing(args.queue)
    with started("redrive", args, shell) as (spark, progress):
        from shardq.spark.pipelines.redrive import letters, preview, redrive

        chosen = letters(spark, queue=args.queue, condition=args.where, **connecting(args, shell)).persist()
        with progress.step("choosing"):
            count = preview(chosen, progress)
        if args.go and count:
            with progress.step("moving"):
                redrive(chosen, queue, args.rate, progress)
        elif count:
            progress.report.remarks.append("nothing was changed: use --go to move them")
