"""`shardq pipeline route`: write events with topics into the queues that are bound to them."""

from __future__ import annotations

from functools import partial

from shardq.cli.parsing import Args, argument, flag, takes
from shardq.cli.pipelines.rows import add_message, add_rows, columns_of, locating, writing
from shardq.cli.pipelines.stage import pipeline, started
from shardq.cli.shell import Shell

ABOUT = """Writes each row of EVENTS once to each queue that is bound to its topic in the router. As with `load`, a
second run with the same id writes only what is missing. It uses the bindings of the moment at which it starts. Rows
that no pattern matches are left out. The payload is the column --payload, or else an object of all columns."""

EXAMPLES = """  shardq pipeline route e.parquet --topic topic --key tenant --payload body
  shardq pipeline route clicks.csv --topic kind --key account --errors unrouted
  shardq pipeline route clicks.json --topic kind --key account --dry-run"""


@pipeline(ABOUT, EXAMPLES)
@takes(partial(add_rows, name="events"))
@argument("--topic", metavar="COLUMN", default="topic", help="the column of the topic (topic)")
@takes(add_message)
@flag("run_id")
@flag("dry_run", "; it counts for each queue")
@flag("router")
def run(args: Args, shell: Shell) -> None:
    """Route the events and write them."""
    bindings = sorted(shell.client.router(args.router).bindings())
    with started("route", args, shell) as (spark, progress), locating(args, args.events, spark):
        from shardq.spark.pipelines.earlier import tell_known
        from shardq.spark.pipelines.inputs import read_table, text_lines
        from shardq.spark.pipelines.load import identity
        from shardq.spark.pipelines.route import routed, write

        columns, reading = columns_of(args), dict(args.option)
        with progress.step(f"looking at {args.events}"):
            rows = read_table(spark, args.events, form=args.format, schema=args.schema, options=reading)
            lines = text_lines(args.events, args.format, reading)
            routes = routed(rows, columns, bindings, args.topic, lines, divert=args.errors is not None)
        if args.dry_run:
            with progress.step("routing"):
                counts = {
                    row.queue: row["count"]
                    for row in routes.where("queue is not null").groupBy("queue").count().collect()
                }
            progress.report.figures |= {"queues": counts, "messages": sum(counts.values())}
        else:
            name = args.run_id or identity(rows, args.router, columns, args.topic, sorted(reading.items()))
            queues = [each.queue for each in bindings]
            options = writing(args, shell, routes, create=True)
            tell_known(rows, queues, name, options, progress)
            counts = write(routes, queues, name, options, progress)
        progress.report.remarks += [f"{count:,} to {queue}" for queue, count in sorted(counts.items())]
