"""The one exception for faults that a user can cause."""


class DoapError(Exception):
    """A fault in what the user gave: one line that says what was wrong, where, and what to do.

    The command line prints it without a stack trace; a stack trace is for our own bugs.
    """
