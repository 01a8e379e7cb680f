"""What a Spark user has to put right before a job can start."""


class SetupError(Exception):
    """Something is missing or does not fit together; the text says what, and what to do."""
