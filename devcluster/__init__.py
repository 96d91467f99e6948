"""A real Kubernetes on one machine, for the demo and the tests."""
