"""The commands of the administration: a thin layer over :class:`pulsarish.admin.Admin`, one module
for each kind of resource.
"""
