"""The interpreters that steps run in: the library's environments, and those that other people's steps ask for."""
