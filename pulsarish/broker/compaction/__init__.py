"""Topics as tables: for each key the newest message, kept in a ledger of its own beside the log, and what readers get of it."""
