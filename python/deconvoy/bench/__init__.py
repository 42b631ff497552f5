"""Experiments: the same work under every runtime and policy, measured to be believed."""
