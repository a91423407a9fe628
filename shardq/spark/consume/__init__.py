"""A Spark job as a consumer: it leases messages as a DataFrame, and settles them by row. docs/spark-consuming.md."""
