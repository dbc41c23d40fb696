"""``python -m pulsarish``: the command line."""

from pulsarish.cli.main import main

main()
