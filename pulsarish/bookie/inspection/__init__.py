"""Read the directories of a bookie that is stopped, or that another process runs.

Nothing is locked or written here, no torn tail is cut off, and what cannot be read is shown with
its file, its offset and the reason, instead of ending the reading.
"""
