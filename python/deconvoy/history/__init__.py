"""Sweep the revisions of a repository, measure each, find the change."""
