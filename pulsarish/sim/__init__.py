"""Whole nodes in one process under virtual time: the world in which correctness is proved.

Read in this order: ``loop`` (time and order), ``nodes`` (life and death), ``network``, ``stream``
and ``connections``, ``disk`` with ``files`` and ``index``, ``metadata`` and ``store``, ``world``
(the whole), ``faults`` (what goes wrong when), ``mutants`` (the proof that all this finds
mistakes).
"""
