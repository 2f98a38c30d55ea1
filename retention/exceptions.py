"""What retention refuses, with words that say what to do."""


class RetentionError(Exception):
    """A request that cannot be carried out; nothing was changed."""


class NotPermitted(RetentionError):
    """The person may not take this decision, or may not take it alone."""
