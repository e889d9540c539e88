"""`python -m doap`."""

from doap.cli.main import main

if __name__ == "__main__":  # processes of a training import this module again
    main()
