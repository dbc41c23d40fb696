"""The replication protocol: ledgers written to several bookies, fenced, recovered and read (rules 1 to 8 and 20 of the guarantees).

Read in this order: ``coverage``, ``placement``, ``writer_core``, ``recovery_core`` and ``reader_core`` (the decisions, without I/O), then
``bookie_stream`` with ``add_stream`` and ``read_stream``, ``control``, ``bookies`` and ``bookie_pool`` (the bookies as seen from here),
``replicator`` (decisions carried out), ``writer``, ``recovery``, ``reading``, ``reader``, and ``client``, the face of it all.
"""
