"""Topics in Apache Spark: a data source for batch and streaming, pipelines described in a file, and jobs over ledgers.

Needs the extra ``pulsarish[spark]`` and Java 17; nothing else of the package imports this one but the commands that need it.
"""
