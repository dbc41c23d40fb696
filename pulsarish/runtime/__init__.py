"""The seams between a node and its world, and their production side: clock, tasks, files, index,
network, configuration, logs, metrics.

Everything that touches the operating system, a thread, a socket or the wall clock is in this
package and not above it.
"""
