"""`python -m doap`."""

from doap.cli.main import main

main()
