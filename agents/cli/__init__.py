"""What the command line needs: arguments, sessions, progress, report."""
