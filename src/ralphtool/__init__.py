"""ralphtool runs a coding agent over the stories of a written change until each is done, and shows what proves it."""

__version__ = "0.1.0"
