"""Dispatchers decide which consumer gets which entry: one core per subscription type, all on the
same plan of reads.
"""
