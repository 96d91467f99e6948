"""What runs inside the speech pods: one gateway, and the backends behind it."""
