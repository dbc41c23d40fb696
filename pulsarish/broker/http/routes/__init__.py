"""The routes of a broker's HTTP port: one module for each kind of object."""
