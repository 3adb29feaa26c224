"""Slots and leases: memory that is written again only when nobody can see it any more."""
