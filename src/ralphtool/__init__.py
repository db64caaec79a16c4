"""ralphtool runs a coding agent over the stories of a written change until every one is done and proven."""

__version__ = "0.1.0"
