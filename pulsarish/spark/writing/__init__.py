"""Writing to topics: which columns are what, how rows become batches with numbers of their own, and the tasks that publish them.

``numbering.py`` has the rules by which nothing is written twice.
"""
