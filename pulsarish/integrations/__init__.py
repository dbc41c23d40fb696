"""Parts for frameworks of others, each with an extra of its own; nothing is imported before it is
used.
"""
