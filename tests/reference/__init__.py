"""Implementations to compare with: written for reading, not for speed."""
