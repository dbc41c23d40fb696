"""The replication protocol: write ledgers to several bookies, fence, recover and read them (rules 1
to 8 and 20).

Read the modules in this order. ``coverage``, ``placement``, ``writer_core``, ``recovery_core`` and
``reader_core`` make the decisions, without I/O. ``bookie_stream`` with ``add_stream`` and
``read_stream``, ``bookie_control``, ``bookies`` and ``bookie_pool`` talk to the bookies.
``replicator`` carries out the writer's decisions. ``writer``, ``recovery``, ``reading`` and
``reader`` follow, and ``client``, the interface of the package.
"""
