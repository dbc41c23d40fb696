"""Pipelines described in a file: read and checked without Spark, then run on it.

`reading.py` makes a `Pipeline` of a file by the declarations in `parts.py` and holds it to `checking.py`; `building.py` makes its
DataFrames, `sinks.py` writes them, `running.py` runs the whole, `pictures.py` draws.
"""
