"""The version of the distribution, in one place."""

VERSION = "1.0.0rc1"
