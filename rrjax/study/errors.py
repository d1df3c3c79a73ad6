"""What a study complains with."""


class StudyError(Exception):
    """A study that cannot be run, or went wrong; the message says what to do, for a person."""


class PeerError(StudyError):
    """Another process of the study ended, or cannot be reached."""
