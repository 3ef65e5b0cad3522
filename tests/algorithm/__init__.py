"""Tests of `td3.algorithm`, file by file."""
