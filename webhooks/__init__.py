"""Signed notices to other systems. Knows no domain table: an event carries its type, its subject and a frozen payload."""
