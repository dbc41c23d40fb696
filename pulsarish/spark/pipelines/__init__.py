"""Pipelines described in a file: read and checked without Spark, then run on it.

`reading.py` makes a `Pipeline` of a file with the declarations in `parts.py`, and checks it with
`checking.py`. `building.py` makes its DataFrames, `sinks.py` writes them, `running.py` runs the
whole, `pictures.py` draws.
"""
