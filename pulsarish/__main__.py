"""``python -m pulsarish``: the command line."""

from pulsarish.cli.main import main

if __name__ == "__main__":  # not in the processes that ``sim run --jobs`` begins
    main()
