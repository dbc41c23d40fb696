"""The commands of the administration: thin words over :class:`pulsarish.admin.Admin`, a module for each kind of resource."""
