"""Kubernetes operator for CosyVoice text-to-speech."""
