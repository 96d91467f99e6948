"""Puts a pinned revision of a model into a cache that pods share: whole and checked, or not at all."""
