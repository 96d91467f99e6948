"""The imperative shell around the core: what is known, what is to be looked at, and the writes that follow."""
