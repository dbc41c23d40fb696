"""The command line. Each group has a module of its own that is imported when it is used, so that
commands start fast.
"""
