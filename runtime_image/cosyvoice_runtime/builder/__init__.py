"""Builds inference engines into a cache that pods share: one program, with one subcommand for each library."""
