"""The one error that is the user's to mend."""


class UserError(Exception):
    """What is wrong and how to mend it, in one line; the command line exits with status 2."""
