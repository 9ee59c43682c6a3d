"""The command line: one small file a command; commands gather and print, other rooms decide."""
