"""The demo: everything on one machine, with a small bucket in which something happens to every kind of object."""
