"""What webhooks refuse, with words that say what to do."""


class WebhooksError(Exception):
    """A request that cannot be carried out; nothing was changed."""
