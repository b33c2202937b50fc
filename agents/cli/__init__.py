"""The command line: arguments, sessions, progress, report."""
