"""A build system and content-addressed artifact store for language-model experiments."""

__version__ = "0.1.0"
