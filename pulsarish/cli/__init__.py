"""The command line. Each group lives in a module of its own that is imported when it is used, so that an answer comes quickly."""
