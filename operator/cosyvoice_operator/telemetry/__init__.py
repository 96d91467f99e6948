"""What the operator tells of itself: logs, metrics, health."""
