"""Write to topics: the roles of columns, how rows become numbered batches, and the tasks that
publish them.

``numbering.py`` has the rules by which nothing is written twice.
"""
