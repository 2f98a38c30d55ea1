"""Pages that look at every application: what waits, how it goes, and one command as a whole."""
