"""`python -m doap`."""

from doap.cli.main import main

if __name__ == "__main__":  # worker processes of a training import this module again
    main()
