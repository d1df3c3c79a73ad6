"""What the command line complains with."""


class UsageError(Exception):
    """A flag that is wrong in itself or contradicts the data; the message is for a person."""
