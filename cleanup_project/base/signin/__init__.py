"""Signing in: who is it, was a second factor shown, how long does the session last, and is the person still there?

django-allauth does the work; what it may not do is left out of `urls`, and what it lacks (records, who must have a factor,
proof before a decision) stands here.
"""
