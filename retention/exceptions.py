"""What retention refuses, with words that say what to do."""


class RetentionError(Exception):
    """A request that cannot be carried out; nothing was changed. `field`: the one thing that was asked wrongly."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class NotPermitted(RetentionError):
    """The person may not take this decision, or may not take it alone."""


class TooMuch(RetentionError):
    """More bears upon it than is read for one answer."""


class TryLater(RetentionError):
    """What stands in the way passes by itself, within minutes."""
