"""The one exception for failures that a user can cause."""


class DoapError(Exception):
    """A error in what the user gave: one line that says what was wrong, where, and what to do.

    The command line prints it without a stack trace; a stack trace is for our own bugs.
    """
