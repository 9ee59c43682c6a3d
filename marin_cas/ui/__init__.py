"""What people see of a build: progress and messages on stderr, data on stdout."""
