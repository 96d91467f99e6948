"""What a runtime pod says of itself."""
