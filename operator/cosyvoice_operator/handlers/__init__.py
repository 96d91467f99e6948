"""Where Kopf ends: its events go into the store and the queue, and nothing else of it is used."""
