"""The HTTP side: OpenAI's speech API, and what the operator and the kubelet ask."""
