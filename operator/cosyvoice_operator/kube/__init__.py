"""The Kubernetes API as raw JSON: the only importer of the Kubernetes client."""
