"""The command line: one short file per group of commands. It reads arguments, calls and prints; it computes nothing."""

from td3.cli.main import COMMANDS, main, parse

__all__ = ["COMMANDS", "main", "parse"]
