"""The exception for errors that a user can cause."""


class DoapError(Exception):
    """An error in the user's input: one line that says what is wrong, where, and what to do.

    The command line prints the line without a stack trace. Any other exception is a bug in doap.
    """
